# Becomes the user at "user" (its number, its group, how many others, and they), and then its arguments.
# as starter-x86_64.s -o s.o; objcopy -O binary -j .text s.o s.bin; base64 s.bin
# setgroups(count, groups)
        mov     $116, %eax
        mov     user+8(%rip), %edi
        lea     user+12(%rip), %rsi
        syscall
        test    %rax, %rax
        jnz     1f
# setresgid(gid, gid, gid)
        mov     user+4(%rip), %edi
        mov     %edi, %esi
        mov     %edi, %edx
        mov     $119, %eax
        syscall
        test    %rax, %rax
        jnz     1f
# setresuid(uid, uid, uid)
        mov     user(%rip), %edi
        mov     %edi, %esi
        mov     %edi, %edx
        mov     $117, %eax
        syscall
        test    %rax, %rax
        jnz     1f
# execve(argv[1], argv + 1, envp)
        mov     (%rsp), %rax
        lea     16(%rsp), %rsi
        lea     16(%rsp,%rax,8), %rdx
        mov     (%rsi), %rdi
        mov     $59, %eax
        syscall
        lea     2f(%rip), %rsi
        mov     $3f-2f, %edx
        jmp     5f
1:      lea     3f(%rip), %rsi
        mov     $4f-3f, %edx
# write(2, message, length); exit(126)
5:      mov     $1, %eax
        mov     $2, %edi
        syscall
        mov     $60, %eax
        mov     $126, %edi
        syscall
2:      .ascii  "bareboat: the command cannot be started in the image\n"
3:      .ascii  "bareboat: the user of USER is not among the subordinate IDs\n"
4:
        .balign 8
user:
