#include <stdio.h>
int main(void) { return puts("hello from C") < 0; }
