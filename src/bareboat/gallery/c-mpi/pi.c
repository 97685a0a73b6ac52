/* Pi by numerical integration, in parallel with MPI: each rank sums its share of the intervals. */

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  long intervals = argc > 1 ? atol(argv[1]) : 100000000;
  if (intervals < 1) {
    if (rank == 0)
      fprintf(stderr, "usage: %s [INTERVALS]\n", argv[0]);
    MPI_Finalize();
    return 2;
  }
  if (rank == 0)
    printf("%ld intervals on %d ranks\n", intervals, size);

  double started = MPI_Wtime(), sum = 0, width = 1.0 / intervals, pi;
  for (long i = rank; i < intervals; i += size) {
    double x = (i + 0.5) * width;
    sum += 4 / (1 + x * x);
  }
  sum *= width;
  MPI_Reduce(&sum, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("pi is %.12f, error %.1e, %.2f s\n", pi, fabs(pi - M_PI), MPI_Wtime() - started);

  MPI_Finalize();
  return 0;
}
