// Becomes the user at "user" (its number, its group, how many others, and they), and then its arguments.
// aarch64-linux-gnu-as starter-aarch64.s -o s.o; aarch64-linux-gnu-objcopy -O binary -j .text s.o s.bin
// setgroups(count, groups)
        adr     x9, user
        mov     x8, #159
        ldr     w0, [x9, #8]
        add     x1, x9, #12
        svc     #0
        cbnz    x0, 1f
// setresgid(gid, gid, gid)
        adr     x9, user
        ldr     w0, [x9, #4]
        mov     w1, w0
        mov     w2, w0
        mov     x8, #149
        svc     #0
        cbnz    x0, 1f
// setresuid(uid, uid, uid)
        adr     x9, user
        ldr     w0, [x9]
        mov     w1, w0
        mov     w2, w0
        mov     x8, #147
        svc     #0
        cbnz    x0, 1f
// execve(argv[1], argv + 1, envp)
        ldr     x9, [sp]
        add     x1, sp, #16
        add     x2, x1, x9, lsl #3
        ldr     x0, [x1]
        mov     x8, #221
        svc     #0
        adr     x1, 2f
        mov     x2, #3f-2f
        b       5f
1:      adr     x1, 3f
        mov     x2, #4f-3f
// write(2, message, length); exit(126)
5:      mov     x0, #2
        mov     x8, #64
        svc     #0
        mov     x0, #126
        mov     x8, #93
        svc     #0
2:      .ascii  "bareboat: the command cannot be started in the image\n"
3:      .ascii  "bareboat: the user of USER is not among the subordinate IDs\n"
4:
        .balign 8
user:
