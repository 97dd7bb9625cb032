/* Ranks of MPI: each sends messages of every size to 1 MiB around a ring and compares them, then all add up a vector.
 * Rank 0 says "ok". */
#include <mpi.h>
#include <string.h>

#include "check.h"

enum { MOST = 1 << 20, WORDS = 1000 };

static unsigned char sent[MOST], got[MOST];

static void fill(unsigned char *bytes, int size, int rank)
{
    for (int i = 0; i < size; i++)
        bytes[i] = i * 7 + (i >> 8) * 31 + rank * 101 + size;
}

int main(int count, char **words)
{
    int rank, ranks, values[WORDS], sums[WORDS];
    CHECK(MPI_Init(&count, &words) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(ranks > 1);
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int size = 1; size <= MOST; size *= 2) {
        MPI_Status status;
        int length;
        fill(sent, size, rank);
        memset(got, 0, size);
        MPI_Sendrecv(sent, size, MPI_BYTE, to, size, got, size, MPI_BYTE, from, size, MPI_COMM_WORLD, &status);
        CHECK(MPI_Get_count(&status, MPI_BYTE, &length) == MPI_SUCCESS && length == size);
        fill(sent, size, from);
        CHECK(!memcmp(sent, got, size));
    }
    for (int i = 0; i < WORDS; i++)
        values[i] = i + rank;
    MPI_Allreduce(values, sums, WORDS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < WORDS; i++)
        CHECK(sums[i] == i * ranks + ranks * (ranks - 1) / 2);
    MPI_Finalize();
    if (rank == 0)
        puts("ok");
    return 0;
}
