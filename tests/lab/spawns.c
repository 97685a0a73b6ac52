/* A thread changes the directory; the program then starts others, between which its heap grows. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *enter(void *nothing) { return chdir("/etc") ? "" : nothing; }

int main(void) {
  pthread_t thread;

  memset(malloc(10000), 1, 10000);
  pthread_create(&thread, NULL, enter, NULL);
  if (pthread_join(thread, NULL) || system("exit 0")) return 1;
  for (int number = 0; number < 2000; number++) memset(malloc(10000), 1, 10000);
  return system("cat seen") != 0;
}
