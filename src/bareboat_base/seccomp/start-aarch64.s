// In front of engines and launchers, as start-x86_64.s describes it.
// aarch64-linux-gnu-as start-aarch64.s -o k.o; aarch64-linux-gnu-objcopy -O binary -j .text k.o k.bin; base64 k.bin
        ldr     x12, [sp, #16]
9:      ldrb    w9, [x12], #1
        cmp     w9, #'k'
        b.eq    keys
        cmp     w9, #'w'
        b.eq    stay
        cmp     w9, #'s'
        b.eq    session
        cbz     w9, 2f
// rt_sigprocmask(SIG_BLOCK or SIG_UNBLOCK, &signals or &others, NULL, 8)
        adr     x1, signals
        adr     x2, others
        cmp     w9, #'n'
        csel    x1, x2, x1, eq
        cmp     w9, #'b'
        cset    x0, ne
        mov     x8, #135
        mov     x2, #0
        mov     x3, #8
call:   svc     #0
        b       9b
// setsid(); prctl(PR_SET_CHILD_SUBREAPER, 1)
session: mov    x8, #157
        mov     x13, x8
        svc     #0
        mov     x8, #167
        mov     x0, #36
        mov     x1, #1
        b       call
// clone(SIGCHLD, 0, NULL, NULL, 0): the child goes on, and so does this process where there may be no other
stay:   mov     x8, #220
        mov     x0, #17
        mov     x1, #0
        mov     x2, #0
        mov     x3, #0
        mov     x4, #0
        svc     #0
        cmp     x0, #0
        b.le    9b
        mov     x9, x0
        sub     sp, sp, #16
// wait4(the child, &status, 0, NULL), in a session of its own also wait4(its group)
await:  mov     x8, #260
        mov     x0, x9
        mov     x1, sp
        mov     x2, #0
        mov     x3, #0
        svc     #0
        cmn     x0, #4
        b.eq    await
        cbz     x13, 10f
        mov     x9, #0
        cmp     x0, #0
        b.gt    await
// rt_sigpending(&set, 8): SIGHUP or SIGTERM
10:     mov     x8, #136
        add     x0, sp, #8
        mov     x1, #8
        svc     #0
        ldr     x0, [sp, #8]
        mov     x1, #0x4001
        tst     x0, x1
        b.eq    ended
        cbz     x13, 11f
// wait4(any: conmon, &status, 0, NULL)
        mov     x8, #260
        mov     x0, #-1
        mov     x1, sp
        svc     #0
// rt_sigtimedwait(&urgent, NULL, &second, 8)
11:     mov     x8, #137
        adr     x0, urgent
        mov     x1, #0
        adr     x2, second
        mov     x3, #8
        svc     #0
// exit(its exit code, or 128 and the number of its signal)
ended:  ldr     w1, [sp]
        lsr     w0, w1, #8
        ands    w1, w1, #0x7f
        b.eq    21f
        add     w0, w1, #128
21:     mov     x8, #93
        svc     #0
// keyctl(KEYCTL_JOIN_SESSION_KEYRING, "_bareboat"): one keyring for all containers of the user
keys:
        mov     x8, #219
        mov     x0, #1
        adr     x1, 4f
        svc     #0
        tbnz    x0, #63, 1f
// keyctl(KEYCTL_SETPERM, it, as it is, and the user may search it): so that the next one finds it by its name
        mov     x9, x0
        mov     x1, x0
        mov     x8, #219
        mov     x0, #5
        movz    x2, #0x3f1b, lsl #16
        svc     #0
// keyctl(KEYCTL_LINK, it, KEY_SPEC_USER_KEYRING): it stays, so that the next step may fail
        mov     x1, x9
        mov     x8, #219
        mov     x0, #8
        mov     x2, #-4
        svc     #0
// keyctl(KEYCTL_JOIN_SESSION_KEYRING, NULL): a new one for this container, unless the limit on keys is reached
        mov     x8, #219
        mov     x0, #1
        mov     x1, #0
        b       call
// ENOSYS: there are no keys; EPERM and EACCES: they are refused here, and so they are inside
1:      cmn     x0, #38
        b.eq    9b
        cmn     x0, #1
        b.eq    9b
        cmn     x0, #13
        b.eq    9b
        adr     x1, 6f
        mov     x2, #7f-6f
        b       8f
// execve(argv[2], argv + 2, envp)
2:      ldr     x9, [sp]
        add     x1, sp, #24
        add     x2, sp, #16
        add     x2, x2, x9, lsl #3
        ldr     x0, [x1]
        mov     x8, #221
        svc     #0
        adr     x1, 5f
        mov     x2, #6f-5f
// write(2, message, length); exit(126)
8:      mov     x8, #64
        mov     x0, #2
        svc     #0
        mov     x0, #126
        b       21b
4:      .asciz  "_bareboat"
5:      .ascii  "bareboat: the program that starts the job cannot be started\n"
6:      .ascii  "bareboat: no session keyring for the container: the limit on keys is reached; see /proc/key-users\n"
7:
        .balign 8
// SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGURG
signals: .quad   0x404a07
others: .quad   0x400a00
urgent: .quad   0x400000 // SIGURG
second: .quad   1, 0
