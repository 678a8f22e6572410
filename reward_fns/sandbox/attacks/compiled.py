"""The same in C++, where the compiler can be attacked too."""

from reward_fns.sandbox.attacks.programs import Attack, attack

# fmt: off
COMPILED: list[Attack] = [
    attack("C++: include the tests", "compile_error", '#include "@FILE@"\nint main() {}', language="cpp"),
    attack("C++: embed the tests", "compile_error", r"""
asm(".globl data\ndata: .incbin \"@FILE@\"");
int main() {}
""", language="cpp"),
    attack("C++: include without end", "compile_error",
          '#include "/dev/stdin"\n#include "/box/main"\n', language="cpp"),
    attack("C++: an executable without end", "compile_error",
          "char x[1ull << 32] = {1};\nint main() {}", language="cpp"),
    attack("C++: constants without end", "compile_error", r"""
constexpr int f(int n) { int s = 0; for (long i = 0; ; ++i) s += i & n; return s; }
constexpr int x = f(3);
int main() {}
""", language="cpp"),
    attack("C++: fork and leave", "wrong", r"""
#include <unistd.h>
int main() { for (;;) if (fork() < 0) return 0; }
""", language="cpp"),
    attack("C++: run a shell", "runtime_error", r"""
#include <cstdlib>
int main() { return system("cat @FILE@") != 0; }
""", language="cpp"),
    attack("C++: allocate without end", "memory", r"""
#include <cstring>
int main() { for (;;) { char *x = new char[1 << 20]; memset(x, 1, 1 << 20); } }
""", language="cpp"),
    attack("C++: overflow the stack", "memory|runtime_error", r"""
int f(volatile int n) { volatile char x[4096]; x[0] = n; return f(n + 1) + x[0]; }
int main() { return f(0); }
""", language="cpp"),
]
