// The first program in a container, as loader-x86_64.s describes it.
// aarch64-linux-gnu-as loader-aarch64.s -o l.o; aarch64-linux-gnu-objcopy -O binary -j .text l.o l.bin; base64 l.bin
        ldr     x9, [sp]
        add     x19, sp, #16
        add     x20, x19, x9, lsl #3
        sub     sp, sp, #8192
// close(197): the descriptor of this very program, which the command must not be able to open for writing
        mov     x8, #57
        mov     x0, #197
        svc     #0
// rt_sigprocmask(SIG_UNBLOCK, &signals, NULL, 8)
        mov     x8, #135
        mov     x0, #1
        adr     x1, signals
        mov     x2, #0
        mov     x3, #8
        svc     #0
// prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        mov     x8, #167
        mov     x0, #38
        mov     x1, #1
        mov     x2, #0
        mov     x3, #0
        mov     x4, #0
        svc     #0
        cbnz    x0, unfiltered
// prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
        mov     x8, #167
        mov     x0, #22
        mov     x1, #2
        adr     x2, program
        svc     #0
        cbnz    x0, unfiltered
// A name without a slash is searched: x22 goes through PATH, or the default one. With one, x22 is an empty PATH.
        mov     w23, #127
        ldr     x21, [x19]
        adr     x22, none
        mov     x9, x21
1:      ldrb    w10, [x9], #1
        cmp     w10, #'/'
        b.eq    try
        cbnz    w10, 1b
        ldrb    w10, [x21]
        cbz     w10, failed
        adr     x22, default
        ldr     w12, path
        mov     x9, x20
2:      ldr     x10, [x9], #8
        cbz     x10, try
        ldr     w11, [x10]
        cmp     w11, w12
        b.ne    2b
        ldrb    w11, [x10, #4]
        cmp     w11, #'='
        b.ne    2b
        add     x22, x10, #5
// The next directory, a slash and the name: at sp, up to x13.
try:    mov     x9, sp
        add     x13, x9, #4096
        mov     x14, x9
3:      ldrb    w10, [x22]
        cbz     w10, 4f
        cmp     w10, #':'
        b.eq    4f
        add     x22, x22, #1
        cmp     x9, x13
        b.hs    3b
        strb    w10, [x9], #1
        b       3b
4:      cmp     x9, x14
        b.eq    5f
        mov     w10, #'/'
        strb    w10, [x9], #1
5:      mov     x11, x21
6:      cmp     x9, x13
        b.hs    next
        ldrb    w10, [x11], #1
        strb    w10, [x9], #1
        cbnz    w10, 6b
// execve(the path, argv + 1, envp)
        mov     x0, sp
        mov     x1, x19
        mov     x2, x20
        mov     x8, #221
        svc     #0
// ENOEXEC: a script without a first line is one for /bin/sh
        cmn     x0, #8
        b.ne    7f
        adr     x0, shell
        sub     x1, x19, #8
        mov     x9, sp
        stp     x0, x9, [x1]
        mov     x2, x20
        mov     x8, #221
        svc     #0
        str     x21, [x19]
// ENOENT, ENOTDIR: perhaps the next one
7:      cmn     x0, #2
        b.eq    next
        cmn     x0, #20
        b.eq    next
        mov     w23, #126
// EACCES: the same, but this is the answer if there is no other
        cmn     x0, #13
        b.ne    failed
next:   ldrb    w10, [x22], #1
        cbnz    w10, try
// write(2, "bareboat: "), the name, what is wrong; exit(w23)
failed: adr     x1, ours
        mov     x2, #unfit-ours
        bl      write
        mov     x1, x21
        mov     x2, #0
8:      ldrb    w10, [x1, x2]
        cbz     w10, 9f
        add     x2, x2, #1
        b       8b
9:      bl      write
        adr     x1, absent
        mov     x2, #kernel-absent
        cmp     w23, #127
        b.eq    10f
        adr     x1, unfit
        mov     x2, #absent-unfit
10:     bl      write
        mov     x8, #93
        mov     w0, w23
        svc     #0
unfiltered:
        adr     x1, kernel
        mov     x2, #last-kernel
        mov     w23, #126
        b       10b
write:  mov     x8, #64
        mov     x0, #2
        svc     #0
        ret
path:   .ascii  "PATH"
none:   .byte   0
default: .asciz "/bin:/usr/bin"
shell:  .asciz  "/bin/sh"
ours:   .ascii  "bareboat: "
unfit:  .ascii  ": the command cannot be executed in the container\n"
absent: .ascii  ": command not found in the container\n"
kernel: .ascii  "bareboat: this kernel does not take a seccomp filter\n"
last:
        .balign 8
// SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGURG
signals: .quad  0x404a07
program:
