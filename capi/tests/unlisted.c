/* The list of devices where RINGSIDE_DEVICE names none that is there. The argument is the name of the error number. Says
 * "ok" and ends with 0. */
#include <infiniband/verbs.h>
#include <string.h>

#include "check.h"

int main(int count, char **words)
{
    int devices = 12345;
    CHECK(count == 2);
    errno = 0;
    CHECK(!ibv_get_device_list(&devices));
    CHECK(errno == (strcmp(words[1], "EINVAL") ? ENODEV : EINVAL));
    CHECK(devices == 0);
    CHECK(!ibv_get_device_list(NULL));
    puts("ok");
    return 0;
}
