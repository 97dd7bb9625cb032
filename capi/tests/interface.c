/* The interface of the device is found by its name, before and after a device is opened, and what the
 * kernel knows of other interfaces stays. */
#include "connect.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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

int main(void)
{
    union ibv_gid gid;
    char name[IFNAMSIZ];
    /* Before anything of verbs. */
    address_is(ask(SIOCGIFADDR, "ringside0", 0), "10.0.0.4");
    open_first(&gid);
    address_is(ask(SIOCGIFADDR, "ringside0", 0), "10.0.0.4");
    address_is(ask(SIOCGIFNETMASK, "ringside0", 0), "255.255.255.0");
    address_is(ask(SIOCGIFBRDADDR, "ringside0", 0), "10.0.0.255");
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
