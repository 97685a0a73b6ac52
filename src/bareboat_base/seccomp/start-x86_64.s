# In front of engines and launchers, with letters as first argument; turns itself into its other arguments.
# b: signals that end a program wait (are blocked) for what it becomes. k: it leaves the session keyring of
# whoever starts it. u: they are let through again, for the command below a launcher; n: those of them that do not end a program are.
# w: it stays, waits for a child that goes on, and exits as that does: after a signal a second later, or when it gets
# SIGURG. A shell that gets a signal as its child ends would lose the exit code. s: in a session of its own; w waits for
# all in it then, and after a signal for conmon, whose exit code is the container's.
# as start-x86_64.s -o k.o; objcopy -O binary -j .text k.o k.bin; base64 k.bin
        mov     16(%rsp), %r12
9:      movzbl  (%r12), %eax
        inc     %r12
        cmp     $'k', %al
        je      keys
        cmp     $'w', %al
        je      stay
        cmp     $'s', %al
        je      session
        test    %al, %al
        jz      2f
# rt_sigprocmask(SIG_BLOCK or SIG_UNBLOCK, &signals or &others, NULL, 8)
        lea     signals(%rip), %rsi
        lea     others(%rip), %rdx
        cmp     $'n', %al
        cmove   %rdx, %rsi
        xor     %edi, %edi
        cmp     $'b', %al
        setne   %dil
        mov     $14, %eax
        xor     %edx, %edx
        mov     $8, %r10d
call:   syscall
        jmp     9b
# setsid(); prctl(PR_SET_CHILD_SUBREAPER, 1)
session: mov    $112, %eax
        mov     %eax, %r13d
        syscall
        mov     $157, %eax
        mov     $36, %edi
        mov     $1, %esi
        jmp     call
# fork(): the child goes on, and so does this process where there may be no other
stay:   mov     $57, %eax
        syscall
        test    %rax, %rax
        jle     9b
        mov     %eax, %ebx
        sub     $16, %rsp
# wait4(the child, &status, 0, NULL), in a session of its own also wait4(its group); a shell before it may have others
await:  mov     $61, %eax
        mov     %ebx, %edi
        mov     %rsp, %rsi
        xor     %edx, %edx
        xor     %r10d, %r10d
        syscall
        cmp     $-4, %rax
        je      await
        test    %r13d, %r13d
        jz      10f
        xor     %ebx, %ebx
        test    %rax, %rax
        jg      await
# rt_sigpending(&set, 8): SIGHUP or SIGTERM
10:     mov     $127, %eax
        lea     8(%rsp), %rdi
        mov     $8, %esi
        syscall
        testl   $0x4001, 8(%rsp)
        jz      ended
        test    %r13d, %r13d
        jz      11f
# wait4(any: conmon, &status, 0, NULL)
        mov     $61, %eax
        mov     $-1, %rdi
        mov     %rsp, %rsi
        syscall
# rt_sigtimedwait(&urgent, NULL, &second, 8)
11:     mov     $128, %eax
        lea     urgent(%rip), %rdi
        xor     %esi, %esi
        lea     second(%rip), %rdx
        mov     $8, %r10d
        syscall
# exit(its exit code, or 128 and the number of its signal)
ended:  mov     (%rsp), %edi
        mov     %edi, %eax
        shr     $8, %edi
        and     $0x7f, %eax
        jz      21f
        lea     128(%rax), %edi
21:     mov     $60, %eax
        syscall
# keyctl(KEYCTL_JOIN_SESSION_KEYRING, "_bareboat"): one keyring for all containers of the user
keys:
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
        jmp     call
# ENOSYS: there are no keys; EPERM and EACCES: they are refused here, and so they are inside
1:      cmp     $-38, %rax
        je      9b
        cmp     $-1, %rax
        je      9b
        cmp     $-13, %rax
        je      9b
        lea     6f(%rip), %rsi
        mov     $7f-6f, %edx
        jmp     8f
# execve(argv[2], argv + 2, envp)
2:      mov     (%rsp), %rax
        lea     24(%rsp), %rsi
        lea     16(%rsp,%rax,8), %rdx
        mov     (%rsi), %rdi
        mov     $59, %eax
        syscall
        lea     5f(%rip), %rsi
        mov     $6f-5f, %edx
# write(2, message, length); exit(126)
8:      mov     $1, %eax
        mov     $2, %edi
        syscall
        mov     $126, %edi
        jmp     21b
4:      .asciz  "_bareboat"
5:      .ascii  "bareboat: the program that starts the job cannot be started\n"
6:      .ascii  "bareboat: no session keyring for the container: the limit on keys is reached; see /proc/key-users\n"
7:
        .balign 8
# SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGURG
signals: .quad   0x404a07
others: .quad   0x400a00
urgent: .quad   0x400000 # SIGURG
second: .quad   1, 0
