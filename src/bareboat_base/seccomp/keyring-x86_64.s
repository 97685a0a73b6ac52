# Leaves the session keyring of whoever starts it, and turns itself into its arguments.
# as keyring-x86_64.s -o k.o; objcopy -O binary -j .text k.o k.bin; base64 k.bin
# keyctl(KEYCTL_JOIN_SESSION_KEYRING, "_bareboat"): one keyring for all containers of the user
        mov     $250, %eax
        mov     $1, %edi
        lea     4f(%rip), %rsi
        syscall
        test    %rax, %rax
        js      1f
# keyctl(KEYCTL_SETPERM, it, as it is, and the user may search it): so that the next one finds it by its name
        mov     %eax, %ebx
        mov     $250, %eax
        mov     $5, %edi
        mov     %ebx, %esi
        mov     $0x3f1b0000, %edx
        syscall
# keyctl(KEYCTL_LINK, it, KEY_SPEC_USER_KEYRING): it stays, so that the next step may fail
        mov     $250, %eax
        mov     %ebx, %esi
        mov     $8, %edi
        mov     $-4, %rdx
        syscall
# keyctl(KEYCTL_JOIN_SESSION_KEYRING, NULL): a new one for this container, unless the limit on keys is reached
        mov     $250, %eax
        mov     $1, %edi
        xor     %esi, %esi
        syscall
        jmp     2f
# ENOSYS: there are no keys; EPERM and EACCES: they are refused here, and so they are inside
1:      cmp     $-38, %rax
        je      2f
        cmp     $-1, %rax
        je      2f
        cmp     $-13, %rax
        jne     3f
# execve(argv[1], argv + 1, envp)
2:      mov     (%rsp), %rax
        lea     16(%rsp), %rsi
        lea     16(%rsp,%rax,8), %rdx
        mov     (%rsi), %rdi
        mov     $59, %eax
        syscall
        lea     5f(%rip), %rsi
        mov     $6f-5f, %edx
        jmp     8f
3:      lea     6f(%rip), %rsi
        mov     $7f-6f, %edx
# write(2, message, length); exit(126)
8:      mov     $1, %eax
        mov     $2, %edi
        syscall
        mov     $60, %eax
        mov     $126, %edi
        syscall
4:      .asciz  "_bareboat"
5:      .ascii  "bareboat: the container engine cannot be started\n"
6:      .ascii  "bareboat: no session keyring for the container: the limit on keys is reached; see /proc/key-users\n"
7:
        .balign 8
