"""Known identities of integer arithmetic, as a table that is expanded by families.

A line is ``lhs -> rhs if conditions ; CONSTANT=values``, after marks that make more lines of it:

    dual:   also with min and max exchanged; DUAL(a, b) is a in the one and b in the other
    comm:   also with the operands of each +, *, min, max, both, either exchanged, in all ways
    trunc:  also with tdiv and tmod for // and %, where all variables are at least 0

The text is read twice: as expressions, for the simplifier, and over numpy arrays, which says what
is right: nothing in the table is taken on trust.
"""

from __future__ import annotations

import ast
import itertools
from typing import NamedTuple

TABLE = """
# sums
x + (y - x) -> y
x - (y + K) + (y + K) -> x ; K=1,-3,100
(x - K) + (K - z) -> x - z ; K=10,-7
(x - y) + (z - x) -> z - y
x + y - y -> x
x + y - x -> y
comm: x - (y + x) -> 0 - y
comm: (x + y) - (x + z) -> y - z
x - x -> 0
(x + K) + L -> x + M ; K,L,M=10,13,23 5,-5,0 -4,7,3
(x + 10) + (13 + z) -> x + z + 23
x + K + y -> x + y + K ; K=3,-8
(K - y) + x -> x - y + K ; K=3,-2
x + 10 - 20 -> x - 10
x + 2 + 3 + 4 + x * K -> x * L + 9 ; K,L=1,2 3,4 -1,0
2 + (3*x + z + y + 1) * 4 + x -> x*13 + z*4 + y*4 + 6
x*3 - 4*x + 1 -> 1 - x
y + x*3 - 5*x + 1 + y -> y*2 + 1 - x*2
(x - y) * K -> (y - x) * L ; K,L=-2,2 -5,5
(x + 2) * 3 -> x*3 + 6
(x * K) * L -> x * M ; K,L,M=2,3,6 4,4,16 -1,5,-5
comm: x*y + x*K -> x * (y + K) ; K=3,10,-1
comm: x*y + x -> x * (y + 1)
x*y - x -> x * (y - 1)
x*y - K*x -> x * (y - K) ; K=10,3
comm: y*x - x*z -> x * (y - z)
(x + 1) * (x - 1) -> x*x - 1
(x + y) * (x + y) - (x - y) * (x - y) -> x*y*4

# least and greatest
dual: comm: min(x, y - z) + z -> min(x + z, y)
dual: comm: min(x - z, y) + z -> min(x, y + z)
dual: min(x, y - K) + K -> min(x + K, y) ; K=10,11,-2
dual: min(x - K, y) + K -> min(x, y + K) ; K=10,11,-2
dual: min(x + 2, y + 3) + (-2) -> min(x, y + 1)
dual: max(0, K - x*4) + x*4 -> max(x*4, K) ; K=1,2,-3
dual: max(K - x*4, 0) + x*4 -> max(x*4, K) ; K=1,2,-3
comm: max(x, y*2) + min(x, y*2) -> x + y*2
comm: max(x, y) * min(x, y) -> x*y
dual: (2*z) + min(x, y - 2*z) -> min(x + z*2, y)
dual: comm: min(x, y) - x -> min(0, y - x)
dual: comm: min(x, y) - y -> min(x - y, 0)
x - min(x, y) -> max(0, x - y)
y - min(x, y) -> max(y - x, 0)
x - max(x, y) -> min(0, x - y)
y - max(x, y) -> min(y - x, 0)
dual: comm: min(x + y, z) - x -> min(y, z - x)
comm: x - min(x + y, z) -> max(0 - y, x - z)
comm: x - max(x + y, z) -> min(0 - y, x - z)
comm: x - max(x + y, 0) -> min(0 - y, x)
comm: x - min(x + y, 0) -> max(0 - y, x)
dual: min(x, y) - min(y, x) -> 0
dual: min(x, y) - min(x + 10, y + 10) -> -10
dual: min(x + 10, y + 1) - min(x, y - 9) -> 10
dual: min(x % 2, y % 2 + 10) -> DUAL(x % 2, y % 2 + 10)
dual: min(tmod(x, 2), tmod(y, 2) + 10) -> DUAL(tmod(x, 2), tmod(y, 2) + 10)
dual: min(x + K, x + L) -> DUAL(x + K, x + L) ; K,L=1,10 10,111 0,1 0,2 -3,0
dual: min(K - x, L - x) -> DUAL(K - x, L - x) ; K,L=1,2 2,3
dual: comm: min(max(x, y), min(x, y)) -> min(x, y)
dual: comm: min(max(x, y), x) -> x
dual: comm: min(min(x, y), x) -> min(x, y)
dual: comm: min(min(x, y), y) -> min(x, y)
dual: min(min(min(x, y), z), y) -> min(min(x, y), z)
dual: min(min(min(min(x, y), z), x*2), y) -> min(min(min(x, y), z), x*2)
dual: min(min(min(min(min(x, y), z), x*2), z*2), y) -> min(min(min(min(x, y), z), x*2), z*2)
dual: comm: min(max(x, y), max(x, z)) -> max(min(y, z), x)
dual: comm: min(y + x, z + x) -> min(y, z) + x
min(x - y, x - z) -> x - max(y, z)
max(x - y, x - z) -> x - min(y, z)
dual: min(y - x, z - x) -> min(y, z) - x
min(min(x, K), L) -> min(x, M) ; K,L,M=1,10,1 11,10,10 -2,-1,-2
max(max(x, K), L) -> max(x, M) ; K,L,M=1,10,10 11,10,11 -2,-1,-1
dual: min(x*3, 9) -> min(x, 3) * 3
dual: min(x*2, 0) -> min(x, 0) * 2
min(0 - x*2, 0) -> max(x, 0) * -2
max(0 - x*2, 0) -> min(x, 0) * -2
min(3 - x, 2) -> 3 - max(x, 1)
max(3 - x, 1) -> 3 - min(x, 2)
min(x * (-2), K) -> max(x, L) * -2 ; K,L=-4,2 4,-2
max(x * (-2), K) -> min(x, L) * -2 ; K,L=-4,2 4,-2
min(x*0, K) -> L ; K,L=4,0 -4,-4
max(x*0, K) -> L ; K,L=4,4 -4,0
dual: comm: min((x + 3) // 4 * 4, x) -> DUAL(x, (x + 3) // 4 * 4)
dual: comm: min(x, x // 4 * 4) -> DUAL(x // 4 * 4, x)
comm: min((x + 3) // 4 * 4, max(x, 4)) -> max(x, 4) if x > 0
comm: min(tdiv(x + 3, 4) * 4, max(x, 4)) -> max(x, 4) if x > 0
dual: comm: min(tdiv(x + 3, 4) * 4, x) -> DUAL(x, tdiv(x + 3, 4) * 4)
dual: min(x // K, y // K) -> min(x, y) // K ; K=10,3
dual: min(tdiv(x, K), tdiv(y, K)) -> tdiv(min(x, y), K) ; K=10,3
min(x // K, y // K) -> max(x, y) // K ; K=-10,-3
max(x // K, y // K) -> min(x, y) // K ; K=-10,-3
min(tdiv(x, K), tdiv(y, K)) -> tdiv(max(x, y), K) ; K=-10,-3
max(tdiv(x, K), tdiv(y, K)) -> tdiv(min(x, y), K) ; K=-10,-3
dual: comm: min(x*6, y) // 2 -> min(x*3, y // 2)
dual: comm: tdiv(min(x*6, y), 2) -> min(x*3, tdiv(y, 2)) if x >= 0, y >= 0

# quotients and remainders
x // C * C + x % C -> x ; C=3,8,-5
tdiv(x, C) * C + tmod(x, C) -> x ; C=3,8,-5
y * (x % 8) + 10 * (x % 8) -> x % 8 * (y + 10)
y * tmod(x, 8) + 10 * tmod(x, 8) -> tmod(x, 8) * (y + 10)
(x % 2 + 7) // 2 + x // 2 -> (x + 7) // 2
(x % C + K) // C + x // C -> (x + K) // C ; C,K=2,7 3,5 5,-4
x - x // C * C -> x % C ; C=3,7
x - tdiv(x, C) * C -> tmod(x, C) ; C=3,7
x // C * C - x -> 0 - x % C ; C=3,7
tdiv(x, C) * C - x -> 0 - tmod(x, C) ; C=3,7
(x + K) // C - x // C -> (x % C + K) // C ; C,K=3,5 3,1 7,20
tdiv(x + 5, 3) - tdiv(x, 3) -> tdiv(tmod(x, 3) + 5, 3) if x >= 0
tdiv(x + 5, 3) - tdiv(x + 1, 3) -> tdiv(tmod(x + 1, 3) + 4, 3) if x >= -1
(x + 5) // 3 - (x + 2) // 3 -> (x + 2) % 3 // 3 + 1
y - tdiv(y, -5) * (-5) -> tmod(y, 5)
y - tdiv(y - 6, 5) * 5 -> tmod(y - 6, 5) + 6
tdiv(y - 6, 5) * 5 - y -> -6 - tmod(y - 6, 5)
y - (y - 6) // 5 * 5 -> (y + 4) % 5 + 6
(y - 6) // 5 * 5 - y -> -6 - (y + 4) % 5
y - (y + z) // 5 * 5 -> (y + z) % 5 - z
(y + z) // 5 * 5 - y -> z - (y + z) % 5
y - (y - z) // 5 * 5 -> (y - z) % 5 + z
(y - z) // 5 * 5 - y -> 0 - (y - z) % 5 - z
y - tdiv(y + z, 5) * 5 -> tmod(y + z, 5) - z
tdiv(y + z, 5) * 5 - y -> z - tmod(y + z, 5)
y - tdiv(y - z, 5) * 5 -> tmod(y - z, 5) + z
tdiv(y - z, 5) * 5 - y -> 0 - tmod(y - z, 5) - z
y*3 - y // 2 * 6 -> y % 2 * 3
y // 3 * 6 - y*2 -> y % 3 * (-2)
y*3 - tdiv(y, 2) * 6 -> tmod(y, 2) * 3
tdiv(y, 3) * 6 - y*2 -> tmod(y, 3) * (-2)
comm: y*5 - (y + z) // 2 * 10 -> ((y + z) % 2 - z) * 5
comm: y*5 - (y - z) // 2 * 10 -> ((y - z) % 2 + z) * 5
comm: (y + z) // 3 * 6 - y*2 -> (z - (y + z) % 3) * 2
comm: (y - z) // 3 * 6 - y*2 -> (0 - (y - z) % 3 - z) * 2
comm: y*5 - tdiv(y + z, 2) * 10 -> (tmod(y + z, 2) - z) * 5
comm: y*5 - tdiv(y - z, 2) * 10 -> (tmod(y - z, 2) + z) * 5
comm: tdiv(y + z, 3) * 6 - y*2 -> (z - tmod(y + z, 3)) * 2
comm: tdiv(y - z, 3) * 6 - y*2 -> (0 - tmod(y - z, 3) - z) * 2
tdiv(x, x) -> 1
x // x -> 1
trunc: x // C // D -> x // M ; C,D,M=2,3,6 4,4,16
tdiv(tdiv(x, 2), 3) -> tdiv(x, 6)
trunc: (x // C + 1) // D -> (x + C) // M ; C,D,M=2,3,6 4,2,8
(x - x % C) // C -> x // C ; C=21,4
x * C // D -> x * M ; C,D,M=4,2,2 12,3,4 -6,3,-2
x * C // D -> x // M ; C,D,M=2,4,2 3,12,4
tdiv(x * 2, 4) -> tdiv(x, 2)
tdiv(x * 4, 2) -> x*2
(x*8 + 7) // 16 -> x // 2
(x*8 + 39) // 16 -> x // 2 + 2
(x*8 - 9) // 16 -> x // 2 + -1
(x*360 + y) // 16 -> x * 22 if x >= 0, x < 2, y >= 0, y < 7
(x*360 + y) // 25 -> x * 14 if x >= 0, x < 2, y >= 0, y < 7
comm: trunc: (x*4 + y) // 2 -> x*2 + y // 2
comm: trunc: (x*C + y + z) // D -> x*M + (y + z) // D ; C,D,M=6,2,3 12,4,3
trunc: (x*6 - y + (y + 3)) // 2 -> x*3 + 1
trunc: (x*6 + (y + 3) - y) // 2 -> x*3 + 1
trunc: (x + C*2) // C -> x // C + 2 ; C=2,5
comm: trunc: (x + y) // x -> y // x + 1 if x > 0
comm: trunc: ((x + y) + z) // x -> (y + z) // x + 1 if x > 0
comm: trunc: (x*y) // y -> x if y > 0
comm: trunc: (x*z + y) // z -> x + y // z if z > 0
(x*z*2 + y) // (z*2) -> x + y // (z*2) if z*2 > 0
comm: (x + y) // x -> y // x + 1 if x >= 0
comm: (x*z + y) // z -> x + y // z if z >= 0
(x*32 + y) // 64 -> x // 2 if y >= 0, y < 32
(x*128 + y*4 + z) // 512 -> x // 4 if y >= 0, y < 32, z >= 0, z < 4
trunc: x % C % D -> x % D ; C,D=16,8 12,3
x * C % D -> 0 ; C,D=10,2 -10,2 12,4
tmod(x * C, D) -> 0 ; C,D=10,2 10,-2 -10,2 -10,-2
tmod(x*10 + y, D) -> tmod(y, 2) if x >= 0, y >= 0 ; D=2,-2
tmod(x + 10, D) -> tmod(x, 2) if x >= 0 ; D=2,-2
tmod(x + y*10, D) -> tmod(x, 2) if x >= 0, y >= 0 ; D=2,-2
tmod(x*10 + 1 + y*2 + 2, D) -> 1 if x >= 0, y >= 0 ; D=2,-2
tmod(x*(-10) + y, D) -> tmod(y, 2) if x <= 0, y >= 0 ; D=2,-2
tmod(x + y*(-10), D) -> tmod(x, 2) if x >= 0, y <= 0 ; D=2,-2
tmod(x*(-10) + 1 + y*(-2) + 2, 2) -> 1 if x <= 0, y <= 0
x*9600 % 6400 -> x*3200 % 6400
(x*C + y) % 2 -> y % 2 ; C=10,-10
(x*360 + y) % 16 -> (x*8 + y) % 16
(x + y*360) % 16 -> (x + y*8) % 16
(x + K) % 2 -> x % 2 ; K=10,-10
(x + y*C) % 2 -> x % 2 ; C=10,-10
(x*32 + y) % 64 -> x % 2 * 32 + y if y >= 0, y < 32
(x*z*2 + y) % (z*2) -> y % (z*2) if z*2 > 0
(x*10 + 1 + y*2 + 2) % 2 -> 1
x % 2 + (x + 1) % 2 -> 1
(x + 1) % 2 + x % 2 -> 1
(x + 1) // 2 - x // 2 -> x % 2
x // 2 - (x - 1) // 2 -> x % 2 * -1 + 1
(x + 5) // 2 - (x - 2) // 2 -> x % 2 + 3
(x + 5) // 2 - (x - 3) // 2 -> 4
(x % 2 + 1) // 2 -> x % 2
(x + 1) // 2 - x % 2 -> x // 2
x // 2 + x % 2 -> (x + 1) // 2
(x + 5) % 2 -> (x + 1) % 2
(x - x % C) % C -> 0 ; C=9,4
(x - x % -9) % 9 -> 0
(x + -x % 9) % 9 -> 0
(x + 8*x % 9) % 9 -> 0
(x - x % y) % y -> 0
(x - x % -y) % y -> 0
(x + -x % y) % y -> 0
tdiv(x + y + x + y*3, 2) -> y*2 + x
tmod(x + y + x + y*3, 2) -> 0
(x + x + y*3) % 2 -> y*3 % 2
(x + y + x + y*3) // 2 -> y*2 + x
(x + y + x + y*3) % 2 -> 0
(x + x + y*3) // 2 -> y*3 // 2 + x
x // 6 * 6 + x // 3 % 2 * 3 + x % 3 -> x
tdiv(x, 6) * 6 + tmod(tdiv(x, 3), 2) * 3 + tmod(x, 3) -> x
x % 16 // 2 * 2 // 4 -> x % 16 // 4
x % 16 // 2 * 2 // 6 -> x % 16 // 6
tdiv(tdiv(tmod(x, 16), 2) * 2, 4) -> tdiv(tmod(x, 16), 4)
tdiv(tdiv(tmod(x, 16), 2) * 2, 6) -> tdiv(tmod(x, 16), 6)
x % 2 // C -> 0 ; C=7,8
tdiv(tmod(x, 2), C) -> 0 ; C=7,8
x*8 % 16 -> x % 2 * 8
tmod(x*8, 16) -> tmod(x, 2) * 8
tmod(x*8, 2) -> 0
tdiv(x*4 + y, 2) * 2 + tmod(x*4 + y, 2) -> x*4 + y
tdiv(z*9 + y, 2) * 2 + tmod(z*9 + y, 2) -> z*9 + y
tmod(-x, 2) -> tmod(x, -2) * -1
-x % 2 -> x % -2 * -1
(x*16 + y*8 + z) % 64 // 8 -> (x*2 + y) % 8 if x >= 0, x < 8, y >= 0, y < 2, z >= 0, z < 8
tdiv(16 + 48*x, 16) -> x*3 + 1
tdiv(17 + 48*x, 16) -> x*3 + 1 if x >= 0
(16 + 48*x) // 16 -> x*3 + 1
(17 + 48*x) // 16 -> x*3 + 1
((x*4 + y - 466036) % 24528 - 24512) % 16 -> (x*4 + y + 12) % 16
x*4 % 16 % 8 -> x % 2 * 4
tmod(tdiv(tmod(x, 20), 2) * 2, 4) -> tdiv(tmod(x, 4), 2) * 2
x*32*x % x -> 0
z*x*32*x*y % (x*z) -> 0
z*x*32*x*y % (x*z*y*8*x) -> 0
z*x*32*(x*y) % (6*x*z) -> x*y*16 % 3 * (x*z*2)
x*32*x % (x*z) -> x*32 % z * x
tmod(x*32*x, x) -> 0
tmod(z*x*32*x*y, x*z) -> 0
tmod(z*x*32*(x*y), 6*x*z) -> tmod(x*y*16, 3) * (x*z*2)
tmod(x*32*x, x*z) -> tmod(x*32, z) * x
x*2*x*z // (4*x*x*x) -> z // (x*2)
x*(2*y)*3 // (3*y) -> x*2
x*(2*y)*3 // (3*y*z) -> x*2 // z
tdiv(x*2*x*z, 4*x*x*x) -> tdiv(z, x*2)
tdiv(x*(2*y)*3, 3*y) -> x*2
tdiv(x*(2*y)*3, 3*y*z) -> tdiv(x*2, z)
(x + 1) * 64 % ((x + 1) * 32) -> 0
(x + 1) * 64 % (32 * (x + 1)) -> 0
(x*3 + y) // 12 * 12 + (x*3 + y) % 12 // 4 * 4 + (x*3 + y) % 4 -> x*3 + y
tdiv(tdiv(tmod(x*128 + y, 1296), 36) * 2 + 1, 2) * 36 + tdiv(tmod(x*128 + y, 36) * 2 + 1, 2) - tmod(x*128 + y, 1296) + 1 -> 1 if x >= 0, x < 6, y >= 0, y < 128
tdiv(x*1024 + y, 65536) + tdiv(tmod(x*1024 + y, 65536), 256) + tdiv(tmod(x*1024 + y, 256), 16) + tmod(x*1024 + y, 16) - tdiv(y, 256) - tdiv(tmod(y, 256), 16) - tmod(y, 16) - x*4 -> tdiv(x*1024 + y, 256) - tdiv(y, 256) - x*4 if x >= 0, x < 6, y >= 0, y < 1025

# comparisons
tmod(x, 2) + 10 == 0 -> false
tmod(x, 2) + 10 != 0 -> true
tmod(x, 2) + 10 > 1 -> true
tmod(x, 2) + 10 <= 1 -> false
x % 2 + 2 > 1 -> true
x % 2 + 10 <= 1 -> false
x*C + 10 == 0 -> false ; C=3,4
x*C + 10 != 0 -> true ; C=3,4
x - 10 == 0 -> x == 10
10 - x == 0 -> x == 10
x*y == 0 -> either(x == 0, y == 0)
x*y != 0 -> both(x != 0, y != 0)
x - 1 < y -> x <= y
x + (-1) < y -> x <= y
x < y - (-1) -> x <= y
x < y + 1 -> x <= y
x + K < y + L -> x <= y ; K,L=2,3 -3,-2 -1,0
x + K < y + L -> x < y + M ; K,L,M=10,10,0 5,10,5 -10,-5,5
x + K < y + L -> x + M < y ; K,L,M=10,5,5 -5,-10,5 0,-10,10
comm: x + y < x + z -> y < z
y - x < z - x -> y < z
x - y < x - z -> z < y
comm: x < z + x -> 0 < z
100 < x + 1 -> 99 < x
1 < 100 - x -> x < 99
x*C < y*C -> x < y ; C=3,8
x*C < y*C -> y < x ; C=-3,-8
x*C <= y*C -> x <= y ; C=3,8
x*C >= y*C -> y <= x ; C=3,8
x*C == y*C -> x == y ; C=3,-8
x*4 >= 2 -> 1 <= x
x*2 >= 50 -> 25 <= x
x*4 <= 2 -> x <= 0
(0 - x*3) <= 0 -> 0 <= x
(0 - x*3) >= 0 -> x <= 0
2*x <= 0 -> x <= 0
x*2 >= K -> L <= x ; K,L=3,2 2,1 1,1 0,0 -1,0 -2,-1 -3,-1
x*2 <= K -> x <= L ; K,L=3,1 2,1 1,0 0,0 -1,-1 -2,-1 -3,-2
x*(-2) >= K -> x <= L ; K,L=3,-2 2,-1 1,-1 0,0 -1,0 -2,1 -3,1
x*(-2) <= K -> L <= x ; K,L=3,-1 2,-1 1,0 0,0 -1,1 -2,1 -3,2
tdiv(x, 2) < 3 -> x < 6
3 < tdiv(x, 2) -> 7 < x
tdiv(x, C) >= K -> L <= x ; C,K,L=3,0,-2 2,1,2 2,0,-1 2,-1,-3
tdiv(x, 2) <= K -> x <= L ; K,L=1,3 0,1 -1,-2
x // 2 < 3 -> x < 6
K < x // 2 -> L < x ; K,L=3,7 -3,-5
x // C >= K -> L <= x ; C,K,L=3,0,0 2,1,2 2,0,0 2,-1,-2
x // 2 <= K -> x <= L ; K,L=1,3 0,1 -1,-1
x // 4 * 4 < x -> 0 < x % 4
x // 4 * 4 >= x -> x % 4 == 0
x // 4 * 4 < x + y -> 0 < x % 4 + y
x // 4 * 4 < x - y -> y < x % 4
(x + 2) // 4 * 4 >= x -> (x + 2) % 4 <= 2
(x + 2) // 4 * 4 >= x + y -> (x + 2) % 4 + y <= 2
(x + 2) // 4 * 4 >= x - y -> (x + 2) % 4 <= y + 2
tdiv(x, 4) * 4 < x -> 0 < tmod(x, 4)
tdiv(x, 4) * 4 >= x -> tmod(x, 4) <= 0
tdiv(x, 4) * 4 < x + y -> 0 < tmod(x, 4) + y
tdiv(x, 4) * 4 < x - y -> y < tmod(x, 4)
tdiv(x + 2, 4) * 4 >= x -> tmod(x + 2, 4) <= 2
tdiv(x + 2, 4) * 4 >= x + y -> tmod(x + 2, 4) + y <= 2
tdiv(x + 2, 4) * 4 >= x - y -> tmod(x + 2, 4) <= y + 2
comm: both(x // 8 == K, x % 8 == 4) -> x == L ; K,L=3,28 -3,-20
comm: both(0 <= x - y*5, x - y*5 < 5) -> y == x // 5
both(x < K, x % 5 < 2) -> both(x < L, x % 5 < 2) ; K,L=20,17 18,17 -20,-23 -22,-23
both(x <= K, x % 5 < 2) -> both(x < L, x % 5 < 2) ; K,L=19,17 18,17 -21,-23 -22,-23
both(x // 10 == K, x % 10 < 7) -> both(L <= x, x < M) ; K,L,M=5,50,57 -5,-50,-43
both(x // 10 == K, x % 10 <= 7) -> both(L <= x, x <= M) ; K,L,M=5,50,57 -5,-50,-43
both(x // 10 == K, 7 < x % 10) -> both(L < x, x < M) ; K,L,M=5,57,60 -5,-43,-40
both(x // 10 == K, 7 <= x % 10) -> both(L <= x, x < M) ; K,L,M=5,57,60 -5,-43,-40
min(x, 11) < 10 -> x < 10
min(x, 8) < 10 -> true
max(8, x) > 10 -> 10 < x
x + 1 < max(8, x) -> x < 7
min(x, y) < x -> y < x
max(x, y) < x -> false
max(x, y) <= x -> y <= x
min(x, y) <= x -> true
x < 11 -> true if x <= 10
x <= 10 -> true if x <= 10
x + y <= 10 -> true if x <= 10, y <= 0
x + y >= -10 -> true if x >= 0, y >= -10
z - 5 <= y + 10 -> true if z <= 5, y >= -10
both(x > -1, z <= x + 5) -> true if x >= 0, z <= 5
x*y <= 0 -> true if x >= 0, y <= 0
(x + 1) * (y - 1) < 0 -> true if x >= 0, y <= 0
y*y >= 0 -> true if y <= 0
y*y >= 0 -> true
x*6 <= -3 -> false if x >= 0
x*y < (x + y) * 2048 -> true if x > 0, y > 0, x < 2048
x*y < (x + y) * 2048 -> true if x > 0, y > 0, x < 4096, y < 4096
x*y*8192 < (y + x) * 16777216 -> true if x > 0, y > 0, x < 4096, y < 4096
x*y*59 < (y + x) * 176128 -> true if x > 0, y > 0, x < 4096, y < 4096
x*8 + y < 16 -> x < 2 if y >= 0, y < 8
x*8 + z*4 < 16 -> x < 2 if z >= 0, z < 2
x*-8 + y < 16 -> -2 < x if y >= 0, y < 8
x*-8 + z*4 < 16 -> -2 < x if z >= 0, z < 2
x*1024 + y < z*7168 -> x - z*7 < 0 if y >= 0, y < 1024
x - 2 < 3 -> x < 5
x < z -> true if x < y, y < z
x + 2 <= z -> true if x < y, y < z
x < y + 1 -> true if x < y
x <= z -> true if x < y, y <= z
x < y -> false if y <= x
x == y -> false if x < y
x != y -> true if x < y
x >= 0 -> true if x == y + 3, y >= 0
x % 4 == 0 -> true if x % 8 == 0
(x + 1) % 2 == 1 -> true if x % 2 == 0

# logic
comm: both(x == y, x != y) -> false
comm: either(x == y, x != y) -> true
comm: both(x > 1, no(x > 1)) -> false
comm: either(x > y, no(x > y)) -> true
comm: both(x <= y, y < x) -> false
comm: either(x <= y, y < x) -> true
comm: both(x < 1, 0 < x) -> false
comm: both(x < 0, 1 < x) -> false
comm: both(x < 1, 1 <= x) -> false
comm: both(x <= 1, 1 < x) -> false
comm: both(x <= 1, 2 <= x) -> false
comm: both(x == 1, x != 2) -> x == 1
comm: both(x == 1, x == 2) -> false
comm: either(x < 1, 0 < x) -> true
comm: either(x < 1, 1 <= x) -> true
comm: either(x <= 1, 1 < x) -> true
comm: either(x <= 1, 2 <= x) -> true
comm: either(x != 1, x == 2) -> x != 1
comm: either(x != 1, x != 2) -> true
comm: both(x < 5, x < 8) -> x < 5
comm: either(x < 5, x < 8) -> x < 8
either(x == 1, either(y == 1, z == 1)) -> either(either(x == 1, y == 1), z == 1)
both(x == 1, both(y == 1, z == 1)) -> both(both(x == 1, y == 1), z == 1)
no(both(x < y, y < z)) -> either(y <= x, z <= y)
no(no(x < y)) -> x < y
no(x < y) -> y <= x
comm: both(x < y, true) -> x < y
comm: both(x < y, false) -> false
comm: either(x < y, true) -> true
comm: either(x < y, false) -> x < y

# choices
select(x < 0, y, 0) + select(x < 0, 1, z) -> select(x < 0, y + 1, z)
select(x < 0, y, 1) - select(x < 0, 1, z) -> select(x < 0, y + -1, 1 - z)
select(x < 0, y, z) - y -> select(x < 0, 0, z - y)
select(x < 0, y, z) - z -> select(x < 0, y - z, 0)
dual: min(select(x < 0, y, 0), select(x < 0, 1, z)) -> select(x < 0, min(y, 1), min(0, z))
select(x*3 + 1 != 0, y, z) -> y
select(x*3 + 1 == 0, y, z) -> z
select(x > 0, y + 1, y + 1) -> y + 1
select(x < y, y, x) -> max(x, y)
select(x <= y, x, y) -> min(x, y)
select(no(x < 0), y, z) -> select(x < 0, z, y)
select(x < 0, select(x < 0, y, z), z) -> select(x < 0, y, z)
select(x >= 10, when(tdiv(x, 3) > 2, x, 0), 0) -> select(x >= 10, x, 0)
select(x >= 10, when(tdiv(x, 3) < 2, x, 0), 0) -> 0
select(both(x >= -1, y >= 0), tmod(x + y + 100, 3), tmod(x + 100, 3)) -> select(both(x >= -1, y >= 0), tmod(x + y + 1, 3), tmod(x + 100, 3))
when(x < 5, when(x > 1, 1, 0), 0) -> when(both(x < 5, 1 < x), 1, 0)
when(x > 2, when(x > 1, 1, 0), 0) -> when(2 < x, 1, 0)
when(x*4 + y >= 466036, when(24512 <= tmod(x*4 + y - 466036, 24528), tmod(tmod(x*4 + y - 466036, 24528) - 24512, 16), x), y) -> when(466036 <= x*4 + y, when(24512 <= tmod(x*4 + y - 4, 24528), tmod(x*4 + y - 4, 16), x), y)
let(lambda t: t + 1, 1) + let(lambda t: t + 1, 1) -> 4

# casts
as_(int64, u + v + 1) - as_(int64, u) -> as_(int64, v) + as_(int64, 1)
as_(T, x - x) -> as_(T, 0) ; T=float32,float16,int32,int8,bool
as_(T, x == x) -> as_(T, 1) ; T=float32,float16,int32,int8,bool
as_(int32, as_(int64, x)) -> x
as_(int64, x) < as_(int64, y) -> x < y
as_(int64, x) * as_(int64, 2) == as_(int64, x*2) -> true if x >= 0, x < 1000
as_(bool, x) -> x != 0

# bits
shl(1, K) -> L ; K,L=10,1024 0,1
x << K -> x * L ; K,L=1,2 4,16
x >> K -> x // L ; K,L=1,2 4,16
x & K -> x % L ; K,L=7,8 31,32
x & 0 -> 0
x ^ x -> 0
x & x -> x
x | x -> x
x | 0 -> x
clz(K) -> L ; K,L=0,32 1,31 2,30 128,24

# vectors
ramp(x, 1, 4) + ramp(y, 2, 4) -> ramp(x + y, 3, 4)
ramp(x, 1, 2) + spread(y, 2) -> ramp(x + y, 1, 2)
spread(y, 2) + ramp(x, 1, 2) -> ramp(y + x, 1, 2)
spread(y, 2) + spread(x, 2) -> spread(y + x, 2)
spread(0, 4) + spread(y, 4) -> spread(y, 4)
spread(x, 4) + ramp(0, 1, 4) -> ramp(x, 1, 4)
as_(float32x4, ramp(x, 1, 4)) + spread(0.0, 4) -> as_(float32x4, ramp(x, 1, 4))
ramp(x, 4, 4) - ramp(y, 2, 4) -> ramp(x - y, 2, 4)
ramp(x, 1, 2) - spread(y, 2) -> ramp(x - y, 1, 2)
spread(y, 2) - ramp(x, 1, 2) -> ramp(y - x, -1, 2)
spread(y, 2) - spread(x, 2) -> spread(y - x, 2)
spread(y, 2) * spread(x, 2) -> spread(y * x, 2)
comm: ramp(x, 4, 4) * spread(2, 4) -> ramp(x*2, 8, 4)
comm: spread(0, 4) * spread(x, 4) -> spread(0, 4)
tdiv(spread(y, 2), spread(x, 2)) -> spread(tdiv(y, x), 2)
tdiv(ramp(x*4, 4, 4), spread(2, 4)) -> ramp(x*2, 2, 4)
tdiv(ramp(x*8 + 1, 1, 4), spread(8, 4)) -> spread(x, 4) if x >= 0
tmod(spread(y, 2), spread(x, 2)) -> spread(tmod(y, x), 2)
tmod(ramp(x, 4, 4), spread(2, 4)) -> spread(tmod(x, 2), 4) if x >= 0
tmod(ramp(x*8 + 1, 1, 4), spread(8, 4)) -> ramp(1, 1, 4) if x >= 0
tmod(ramp(x*8 + 1, 15, 4), spread(8, 4)) -> tmod(ramp(1, 15, 4), spread(8, 4)) if x >= 0
spread(y, 2) // spread(x, 2) -> spread(y // x, 2)
ramp(x, 4, 4) // spread(2, 4) -> ramp(x // 2, 2, 4)
ramp(x*8 + 1, 1, 4) // spread(8, 4) -> spread(x, 4)
ramp(x, 8, 5) // spread(4, 5) -> ramp(x // 4, 2, 5)
ramp(x*4 % 256, 1, 4) // spread(8, 4) -> spread(x*4 % 256 // 8, 4)
ramp(x*8, 1, 4) // spread(4, 4) -> spread(x*2, 4)
ramp(x*4, 1, 4) // spread(64, 4) -> spread(x // 16, 4)
ramp(x*8, 2, 4) // spread(64, 4) -> spread(x // 8, 4)
spread(y, 2) % spread(x, 2) -> spread(y % x, 2)
ramp(x, 4, 4) % spread(2, 4) -> spread(x % 2, 4)
ramp(x*8 + 1, 1, 4) % spread(8, 4) -> ramp(1, 1, 4)
ramp(x*8 + 1, 15, 4) % spread(8, 4) -> ramp(1, 15, 4) % spread(8, 4)
ramp(x, 8, 4) % spread(4, 4) -> spread(x % 4, 4)
ramp(x*8, 1, 4) % spread(4, 4) -> ramp(0, 1, 4)
ramp(x*8, 1, 5) % spread(4, 5) -> ramp(0, 1, 5) % spread(4, 5)
ramp(x*8 + 7, 1, 4) % spread(4, 4) -> ramp(3, 1, 4) % spread(4, 4)
ramp(x*4, 1, 4) % spread(64, 4) -> ramp(x*4 % 64, 1, 4)
ramp(x*8, 2, 4) % spread(64, 4) -> ramp(x*8 % 64, 2, 4)
dual: min(spread(y, 2), spread(x, 2)) -> spread(min(y, x), 2)
dual: min(min(ramp(z, 3, 2), spread(y, 2)), spread(x, 2)) -> min(ramp(z, 3, 2), spread(min(y, x), 2))
spread(y, 2) == spread(x, 2) -> spread(y == x, 2)
spread(y, 2) != spread(x, 2) -> spread(y != x, 2)
spread(y, 2) > spread(x, 2) -> spread(x < y, 2)
spread(y, 2) >= spread(x, 2) -> spread(x <= y, 2)
spread(y, 2) < spread(x, 2) -> spread(y < x, 2)
spread(y, 2) <= spread(x, 2) -> spread(y <= x, 2)
both(spread(y, 2) <= spread(x, 2), spread(z < 0, 2)) -> spread(both(y <= x, z < 0), 2)
either(spread(y, 2) <= spread(x, 2), spread(z < 0, 2)) -> spread(either(y <= x, z < 0), 2)
ramp(x, 2, 4) < spread(y, 4) -> spread(true, 4) if x + 6 < y
ramp(x, 2, 4) >= spread(y, 4) -> spread(true, 4) if x >= y
select(spread(x < y, 4), ramp(z, 1, 4), ramp(z, 1, 4)) -> ramp(z, 1, 4)

# values of a buffer
load(x) - load(x) -> 0
load(x + y - y) - load(x) -> 0
load(x) + load(y) - load(x) -> load(y)
load(x) // 4 * 4 + load(x) % 4 -> load(x)
load(x) * 4 // 4 -> load(x)
load((x*4 + y) // 4) -> load(x) if y >= 0, y < 4
comm: min(load(x), load(x) + 1) -> load(x)
load(x) < load(x) + 1 -> true
load(x) == load(x) -> true
max(load(x), load(y)) + min(load(x), load(y)) -> load(x) + load(y)
load(min(x, y)) -> load(x) if x <= y
select(load(x) < 0, y, y) -> y
"""


class Identity(NamedTuple):
    section: str
    lhs: str
    rhs: str
    conditions: tuple[str, ...]

    def __str__(self) -> str:
        tail = f"  if {', '.join(self.conditions)}" if self.conditions else ""
        return f"{self.lhs}  ->  {self.rhs}{tail}"


DUAL = {"min": "max", "max": "min"}
COMMUTES = {"min", "max", "both", "either"}


class _Rename(ast.NodeTransformer):
    """Calls under other names, and // and % as calls."""

    def __init__(self, names: dict[str, str], trunc: bool = False) -> None:
        self.names, self.trunc = names, trunc

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name):
            node.func.id = self.names.get(node.func.id, node.func.id)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = {ast.FloorDiv: "tdiv", ast.Mod: "tmod"}.get(type(node.op)) if self.trunc else None
        if name is None:
            return node
        return ast.Call(ast.Name(name), [node.left, node.right], [])


def _renamed(text: str, names: dict[str, str], trunc: bool = False) -> str:
    return ast.unparse(_Rename(names, trunc).visit(ast.parse(text, mode="eval")))


def _pairs(tree: ast.AST) -> list[tuple[ast.AST, str, str]]:
    """The places where two operands may be exchanged, with the names of the two fields."""
    found = []
    for n in ast.walk(tree):
        if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Add, ast.Mult)):
            if ast.dump(n.left) != ast.dump(n.right):
                found.append(n)
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in COMMUTES:
            found.append(n)
    return found[:3]


def _commuted(text: str) -> list[str]:
    texts = []
    count = len(_pairs(ast.parse(text, mode="eval")))
    for flips in itertools.product((False, True), repeat=count):
        tree = ast.parse(text, mode="eval")
        for place, flip in zip(_pairs(tree), flips):
            if flip and isinstance(place, ast.Call):
                place.args.reverse()
            elif flip:
                place.left, place.right = place.right, place.left
        texts.append(ast.unparse(tree))
    return texts


def _with_constants(line: str, given: str) -> list[str]:
    """The line for each of the values in ``K,L=1,2 3,4`` or ``K=1,2``."""
    if not given:
        return [line]
    names, _, rest = given.partition("=")
    keys = names.strip().split(",")
    rows = rest.split()
    values = [r.split(",") for r in rows] if len(keys) > 1 else [[v] for v in rest.strip().split(",")]
    lines = []
    for row in values:
        tokens = _tokens(line)
        table = dict(zip(keys, row))
        lines.append("".join(f"({table[t]})" if t in table and table[t][0] == "-" else table.get(t, t)
                             for t in tokens))
    return lines


def _tokens(line: str) -> list[str]:
    out, word = [], ""
    for c in line:
        if c.isalnum() or c == "_":
            word += c
            continue
        if word:
            out.append(word)
            word = ""
        out.append(c)
    return [*out, word] if word else out


def _choose(text: str, least: bool) -> str:
    """DUAL(a, b) is a in the line with min and b in the one with max."""
    tree = ast.parse(text, mode="eval")

    class Pick(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.func, ast.Name) and node.func.id == "DUAL":
                return node.args[0 if least else 1]
            return node

    return ast.unparse(Pick().visit(tree))


def expand() -> list[Identity]:
    """Every line of the table, with what its marks make of it; each once."""
    found: dict[Identity, None] = {}
    section = ""
    for raw in TABLE.strip().splitlines():
        if raw.startswith("#"):
            section = raw[1:].strip()
        elif raw:
            for each in _expand_line(section, raw):
                found.setdefault(each)
    return list(found)


def _expand_line(section: str, raw: str) -> list[Identity]:
    marks = set()
    while (mark := raw.partition(":")[0]) in ("dual", "comm", "trunc"):
        marks.add(mark)
        raw = raw.partition(":")[2].strip()
    body, _, constants = raw.partition(";")
    out = []
    for line in _with_constants(body, constants.strip()):
        text, _, condition = line.partition(" if ")
        lhs, _, rhs = (part.strip() for part in text.partition("->"))
        conditions = tuple(c.strip() for c in condition.split(",") if c.strip())
        for flipped in (False, True) if "dual" in marks else (False,):
            left, right = lhs, rhs
            if flipped:
                left, right = _renamed(left, DUAL), _renamed(right, DUAL)
            right = _choose(right, not flipped)
            for trunc in (False, True) if "trunc" in marks else (False,):
                names = sorted({n.id for n in ast.walk(ast.parse(left)) if isinstance(n, ast.Name)})
                known = tuple(f"{v} >= 0" for v in names if v in "xyz") if trunc else ()
                forms = [_renamed(t, {}, trunc) for t in (left, right)]
                lefts = _commuted(forms[0]) if "comm" in marks else [forms[0]]
                out += [Identity(section, t, forms[1], (*known, *conditions)) for t in lefts]
    return out
