/* The interface of the device is found by its name, before and after a device is opened, and what the
 * kernel knows of other interfaces stays. */
#define _GNU_SOURCE
#include "connect.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <rdma/rdma_cma.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ifreq ask(unsigned long request, const char *name, int expected)
{
    int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq asked = { 0 };
    CHECK(descriptor >= 0);
    strcpy(asked.ifr_name, name);
    int result = ioctl(descriptor, request, &asked);
    CHECK(expected ? result == -1 && errno == expected : result == 0);
    close(descriptor);
    return asked;
}

static void address_is(struct ifreq answered, const char *text)
{
    struct sockaddr_in *four = (struct sockaddr_in *)&answered.ifr_addr;
    CHECK(four->sin_family == AF_INET && four->sin_addr.s_addr == inet_addr(text));
}

/* The addresses of a configuration, more than 16 of them: each is listed with its own mask. */
static void networks(void)
{
    union ibv_gid gid;
    struct ifaddrs *list;
    int small = 0, others = 0;
    open_first(&gid);
    CHECK(!getifaddrs(&list));
    for (struct ifaddrs *one = list; one; one = one->ifa_next) {
        const struct sockaddr_in *address = (void *)one->ifa_addr, *mask = (void *)one->ifa_netmask;
        if (strcmp(one->ifa_name, "ringside0") || address->sin_family != AF_INET)
            continue;
        int is_small = (address->sin_addr.s_addr & htonl(0xFFFF0000)) == inet_addr("10.20.0.0");
        CHECK(mask->sin_addr.s_addr == inet_addr(is_small ? "255.255.240.0" : "255.255.255.128"));
        small += is_small;
        others += !is_small;
    }
    CHECK(small == 1 && others == 20);
    freeifaddrs(list);
    address_is(ask(SIOCGIFNETMASK, "ringside0", 0), "255.255.240.0");
    address_is(ask(SIOCGIFBRDADDR, "ringside0", 0), "10.20.15.255");
}

/* The index of the interface is that of each GID. */
static void index_of_gids(struct ibv_context *context, unsigned index)
{
    struct ibv_gid_entry entry, table[8];
    CHECK(!ibv_query_gid_ex(context, 1, GID_INDEX, &entry, 0) && entry.ndev_ifindex == index);
    ssize_t count = ibv_query_gid_table(context, table, 8, 0);
    CHECK(count >= 2);
    for (int i = 0; i < count; i++)
        CHECK(table[i].ndev_ifindex == index);
}

/* The table has a constant length, and entries without an address are as rdma-core gives them. */
static void entries_without_addresses(struct ibv_context *context)
{
    static const union ibv_gid none;
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;
    union ibv_gid gid;
    CHECK(!ibv_query_port(context, 1, &port) && port.gid_tbl_len == 64);
    int last = port.gid_tbl_len - 1;
    memset(&gid, 0xFF, sizeof gid);
    CHECK(!ibv_query_gid(context, 1, last, &gid) && !memcmp(&gid, &none, sizeof gid));
    CHECK(ibv_query_gid_ex(context, 1, last, &entry, 0) == ENODATA);
    CHECK(ibv_query_gid(context, 1, last + 1, &gid) == -1 && errno == EINVAL);
    CHECK(ibv_query_gid_ex(context, 1, last + 1, &entry, 0) == EINVAL);
}

/* A link-local address names the interface: as getifaddrs lists it, and as ids that are bound to it show it. */
static void scope_is(union ibv_gid *local, unsigned index)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in6 wanted = { .sin6_family = AF_INET6, .sin6_scope_id = index };
    struct rdma_cm_id *id;
    struct ifaddrs *list;
    int found = 0;
    memcpy(&wanted.sin6_addr, local, sizeof(*local));
    CHECK(!getifaddrs(&list));
    for (struct ifaddrs *one = list; one; one = one->ifa_next) {
        const struct sockaddr_in6 *six = (void *)one->ifa_addr;
        if (!six || six->sin6_family != AF_INET6 || memcmp(&six->sin6_addr, local, sizeof(*local)))
            continue;
        CHECK(six->sin6_scope_id == index);
        found++;
    }
    freeifaddrs(list);
    CHECK(found == 1);
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&wanted));
    CHECK(((struct sockaddr_in6 *)rdma_get_local_addr(id))->sin6_scope_id == index);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

/* Not in the public headers. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *into, size_t size);
const char *ibv_get_sysfs_path(void);

static void rate_is(const char *expected)
{
    static const char folder[] = "/sys/class/infiniband/ringside0/ports/1";
    char text[64];
    int length = strlen(expected);
    CHECK(ibv_read_sysfs_file(folder, "rate", text, sizeof text) == length && !strcmp(text, expected));
    CHECK(ibv_read_sysfs_file(folder, "rate", text, length + 1) == length);
    CHECK(ibv_read_sysfs_file(folder, "rate", text, length) == -1);
    CHECK(ibv_read_sysfs_file(folder, "none", text, sizeof text) == -1);
    CHECK(!setenv("SYSFS_PATH", "/elsewhere//", 1) && !strcmp(ibv_get_sysfs_path(), "/elsewhere"));
}

/* As a Linux interface: one entry with the MAC address, and of IPv4 addresses the broadcast address. */
static void entries_are_whole(const unsigned char *mac, int index)
{
    static const unsigned char all[6] = { 255, 255, 255, 255, 255, 255 };
    struct ifaddrs *list;
    int links = 0, fours = 0;
    CHECK(!getifaddrs(&list));
    for (struct ifaddrs *one = list; one; one = one->ifa_next) {
        const struct sockaddr_ll *link = (void *)one->ifa_addr, *broadcast = (void *)one->ifa_broadaddr;
        const struct sockaddr_in *four = (void *)one->ifa_addr;
        if (strcmp(one->ifa_name, "ringside0") || !(one->ifa_flags & IFF_BROADCAST))
            continue;
        if (link->sll_family == AF_PACKET) {
            CHECK(link->sll_ifindex == index && link->sll_hatype == 1 && link->sll_halen == 6);
            CHECK(!memcmp(link->sll_addr, mac, 6) && !memcmp(broadcast->sll_addr, all, 6));
            CHECK(!((const struct rtnl_link_stats *)one->ifa_data)->rx_packets);
            links++;
        } else if (four->sin_family == AF_INET) {
            CHECK(four->sin_addr.s_addr == inet_addr("10.0.0.4"));
            CHECK(((const struct sockaddr_in *)one->ifa_broadaddr)->sin_addr.s_addr == inet_addr("10.255.255.255"));
            fours++;
        }
    }
    CHECK(links == 1 && fours == 1);
    freeifaddrs(list);
}

/* A pattern finds one file. */
static void is_found(const char *pattern, const char *path)
{
    glob_t found;
    CHECK(!glob(pattern, 0, NULL, &found) && found.gl_pathc == 1 && !strcmp(found.gl_pathv[0], path));
    globfree(&found);
}

static void file_is(const char *folder, const char *name, const char *expected)
{
    char path[128], text[64] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(text, sizeof text, file) && !fclose(file));
    text[strcspn(text, "\n")] = 0;
    if (strcmp(text, expected))
        fprintf(stderr, "%s: %s\n", path, text);
    CHECK(!strcmp(text, expected));
}

/* Programs find the interface of an RDMA device below it, and ask for its state and speed. */
static void files_of_the_interface(void)
{
    static const char below[] = "/sys/class/infiniband/ringside0/device/net";
    static const char *const folders[] = { "/sys/class/net/ringside0",
        "/sys/class/infiniband/ringside0/device/net/ringside0" };
    DIR *list = opendir(below);
    CHECK(list);
    int found = 0;
    for (struct dirent *one; (one = readdir(list));)
        found += !strcmp(one->d_name, "ringside0");
    CHECK(found == 1 && !closedir(list));
    for (int i = 0; i < 2; i++) {
        file_is(folders[i], "operstate", "up");
        file_is(folders[i], "carrier", "1");
        file_is(folders[i], "flags", "0x1003");
        file_is(folders[i], "type", "1");
        file_is(folders[i], "speed", "100000");
    }
    file_is("/sys/class/infiniband/ringside0", "fw_ver", "1.53");
    file_is("/sys/class/infiniband/ringside0", "hw_rev", "2");
}

/* The same files by a descriptor of "/", as hwloc names them; other folders have none of them. */
static void files_from_the_root(void)
{
    static const char type[] = "sys/class/infiniband/ringside0/node_type";
    struct stat about;
    struct statx more;
    char text[16] = "", target[256];
    int root = open("/", O_PATH | O_DIRECTORY), other = open("/usr", O_PATH | O_DIRECTORY), file;
    CHECK(root >= 0 && other >= 0 && (file = openat(root, type, O_RDONLY)) >= 0);
    CHECK(read(file, text, sizeof text - 1) > 0 && !strncmp(text, "1: CA", 5) && !close(file));
    CHECK(!fstatat(root, type, &about, 0) && S_ISREG(about.st_mode) && !faccessat(root, type, R_OK, 0));
    CHECK(!statx(root, type, 0, STATX_TYPE, &more) && S_ISREG(more.stx_mode));
    CHECK(!fstatat(root, "dev/infiniband/uverbs0", &about, 0) && S_ISCHR(about.st_mode));
    CHECK(readlinkat(root, "sys/class/infiniband", target, sizeof target) == -1 && errno == EINVAL);
    CHECK(openat(other, type, O_RDONLY) == -1 && errno == ENOENT);
    CHECK(openat(root, "sys/class/infiniband/other0", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(!fstatat(root, "sys/class/net/lo", &about, 0) && (file = openat(root, "etc/passwd", O_RDONLY)) >= 0);
    CHECK(!close(file) && !close(root) && !close(other));
}

/* How often the lists of interfaces name one: the folder of all, the names, and the IPv4 addresses. */
struct found {
    int files, names, addresses;
};

static struct found listed(const char *name)
{
    struct found found = { 0 };
    struct ifreq entries[64];
    struct ifconf all = { .ifc_len = 0 };
    int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
    DIR *list = opendir("/sys/class/net");
    CHECK(list && descriptor >= 0);
    for (struct dirent *one; (one = readdir(list));)
        found.files += !strcmp(one->d_name, name);
    CHECK(!closedir(list));
    struct if_nameindex *names = if_nameindex();
    CHECK(names);
    for (struct if_nameindex *one = names; one->if_index; one++) {
        CHECK(if_nametoindex(one->if_name) == one->if_index);
        found.names += !strcmp(one->if_name, name);
    }
    if_freenameindex(names);
    /* The room that is wanted, too little of it, and more than enough. */
    CHECK(!ioctl(descriptor, SIOCGIFCONF, &all) && all.ifc_len > 0 && all.ifc_len % sizeof(struct ifreq) == 0);
    int wanted = all.ifc_len;
    all.ifc_req = entries;
    all.ifc_len = sizeof(struct ifreq) - 1;
    CHECK(!ioctl(descriptor, SIOCGIFCONF, &all) && all.ifc_len == 0);
    all.ifc_len = sizeof entries;
    CHECK(!ioctl(descriptor, SIOCGIFCONF, &all) && all.ifc_len == wanted);
    for (int i = 0; i < (int)(wanted / sizeof *entries); i++)
        found.addresses += !strcmp(entries[i].ifr_name, name);
    close(descriptor);
    return found;
}

/* Lists name the interface, once a device was opened, beside the kernel's. */
static void lists_are_whole(int index)
{
    struct found ours = listed("ringside0"), lo = listed("lo");
    struct ifreq asked = { .ifr_ifindex = index };
    int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(ours.files == 1 && ours.names == 1 && ours.addresses == 1);
    CHECK(lo.files == 1 && lo.names == 1);
    file_is("/sys/class/net", "lo/ifindex", "1");
    is_found("/sys/class/net/r*0/mtu", "/sys/class/net/ringside0/mtu");
    is_found("/sys/class/net/[l]o/mtu", "/sys/class/net/lo/mtu");
    is_found("/sys/class/infiniband/*/ports/1/gids/0", "/sys/class/infiniband/ringside0/ports/1/gids/0");
    CHECK(descriptor >= 0 && !ioctl(descriptor, SIOCGIFNAME, &asked) && !strcmp(asked.ifr_name, "ringside0"));
    asked.ifr_ifindex = index + 1;
    CHECK(ioctl(descriptor, SIOCGIFNAME, &asked) == -1 && errno == ENODEV);
    asked.ifr_ifindex = 1;
    CHECK(!ioctl(descriptor, SIOCGIFNAME, &asked) && !strcmp(asked.ifr_name, "lo"));
    close(descriptor);
}

int main(int count, char **words)
{
    union ibv_gid gid;
    char name[IFNAMSIZ];
    if (count == 2 && !strcmp(words[1], "networks")) {
        networks();
        puts("ok");
        return 0;
    }
    /* Before anything of verbs. */
    CHECK(listed("ringside0").files == 1);
    address_is(ask(SIOCGIFADDR, "ringside0", 0), "10.0.0.4");
    struct ibv_context *context = open_first(&gid);
    address_is(ask(SIOCGIFADDR, "ringside0", 0), "10.0.0.4");
    address_is(ask(SIOCGIFNETMASK, "ringside0", 0), "255.0.0.0");
    address_is(ask(SIOCGIFBRDADDR, "ringside0", 0), "10.255.255.255");
    CHECK(ask(SIOCGIFFLAGS, "ringside0", 0).ifr_flags & IFF_UP);
    CHECK(ask(SIOCGIFMTU, "ringside0", 0).ifr_mtu >= 1500);
    struct ifreq hardware = ask(SIOCGIFHWADDR, "ringside0", 0);
    unsigned char *mac = (unsigned char *)hardware.ifr_hwaddr.sa_data;
    CHECK(hardware.ifr_hwaddr.sa_family == 1);
    /* The link-local address holds the MAC address, its second bit inverted. */
    union ibv_gid local;
    CHECK(!ibv_query_gid(ibv_open_device(ibv_get_device_list(NULL)[0]), 1, 0, &local));
    CHECK(local.raw[8] == (mac[0] ^ 2) && local.raw[9] == mac[1] && local.raw[10] == mac[2]);
    CHECK(local.raw[13] == mac[3] && local.raw[14] == mac[4] && local.raw[15] == mac[5]);
    int index = ask(SIOCGIFINDEX, "ringside0", 0).ifr_ifindex;
    CHECK(index > 0 && (unsigned)index == if_nametoindex("ringside0"));
    CHECK(if_indextoname(index, name) == name && !strcmp(name, "ringside0"));
    index_of_gids(context, index);
    entries_without_addresses(context);
    scope_is(&local, index);
    entries_are_whole(mac, index);
    files_of_the_interface();
    files_from_the_root();
    lists_are_whole(index);
    rate_is("100 Gb/sec (4X EDR)");
    /* The kernel's own, and none's. */
    address_is(ask(SIOCGIFADDR, "lo", 0), "127.0.0.1");
    CHECK(if_nametoindex("lo") == 1);
    ask(SIOCGIFADDR, "ringside1", ENODEV);
    CHECK(!if_nametoindex("ringside1") && !if_indextoname(index + 1, name));
    struct ifreq asked = { .ifr_name = "ringside0" };
    CHECK(ioctl(-1, SIOCGIFADDR, &asked) == -1 && errno == EBADF);
    puts("ok");
    return 0;
}
