/*
** What the interpreter has beyond Lua 5.1.5: see additions.h.
*/

#include <limits.h>
#include <stdint.h>
#include <string.h>

#define LUA_CORE

#include "lua.h"

#include "ldebug.h"
#include "ldo.h"
#include "lgc.h"
#include "lobject.h"
#include "lstate.h"
#include "ltable.h"


LUA_API void keyfast_setreadonly (lua_State *L, int idx) {
  lua_pushvalue(L, idx);
  hvalue(L->top - 1)->readonly = 1;
  lua_pop(L, 1);
}


LUA_API void keyfast_rawset (lua_State *L, int idx) {
  Table *t;
  lua_pushvalue(L, idx);
  t = hvalue(L->top - 1);
  lua_pop(L, 1);
  setobj2t(L, luaH_set(L, t, L->top - 2), L->top - 1);
  luaC_barriert(L, t, L->top - 1);
  L->top -= 2;
}


LUA_API void keyfast_makeroom (lua_State *L) {
  luaD_checkstack(L, 1);
  if (L->ci->top <= L->top)
    L->ci->top = L->top + 1;
}


LUA_API void keyfast_charge (lua_State *L, size_t units) {
  /* one is left: the next instruction takes it, and the hook runs */
  if (L->hookcount > 1)
    L->hookcount = (units < (size_t)L->hookcount) ? L->hookcount - (int)units : 1;
}


LUA_API void keyfast_work (lua_State *L, size_t units) {
  if (units < (size_t)L->hookcount)
    L->hookcount -= (int)units;
  else if (L->hookmask & LUA_MASKCOUNT) {
    resethookcount(L);
    luaD_callhook(L, LUA_HOOKCOUNT, -1);
  }
}


LUA_API void keyfast_passcount (lua_State *from, lua_State *to) {
  to->hookcount = from->hookcount;
}


LUA_API void keyfast_setending (lua_State *L, int ending) {
  G(L)->isending = cast_byte(ending);
}


LUA_API int keyfast_isending (lua_State *L) {
  return G(L)->isending;
}


/*
** {======================================================
** Hashes
** =======================================================
*/

/* 2^61 - 1, which is a prime */
#define PRIME	((UINT64_C(1) << 61) - 1)

static uint64_t point = UINT64_C(0x123456789abcdef);
static uint64_t point4 = UINT64_C(0x11cbc68ed5a5fe1c);  /* its fourth power */
static uint64_t start = UINT64_C(0xfedcba987654321);
static uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);


/*
** (a * b) modulo PRIME, or PRIME more than that. One of them is below 2^61, the other below 2^62.
*/
static uint64_t multiply (uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
  unsigned __int128 product = (unsigned __int128)a * b;
  uint64_t low = (uint64_t)product & PRIME;
  uint64_t high = (uint64_t)(product >> 61);
#else
  uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
  uint64_t middle = a0 * b1 + ((a0 * b0) >> 32);
  uint64_t rest = a1 * b0 + (middle & 0xffffffff);
  uint64_t upper = a1 * b1 + (middle >> 32) + (rest >> 32);
  uint64_t lower = (rest << 32) | ((a0 * b0) & 0xffffffff);
  uint64_t low = lower & PRIME;
  uint64_t high = (upper << 3) | (lower >> 61);
#endif
  uint64_t sum = low + high;  /* below 2^61 + 2^62 */
  return (sum & PRIME) + (sum >> 61);
}


LUA_API void keyfast_setsecrets (unsigned long long first, unsigned long long second,
                                 unsigned long long third) {
  point = first % (PRIME - 1) + 1;
  point4 = multiply(point, point);
  point4 = multiply(point4, point4) % PRIME;
  start = second % PRIME;
  factor = third | 1;
}


/* the first seven of eight bytes, as a number */
static uint64_t seven (const char *s) {
  uint64_t bits;
  memcpy(&bits, s, sizeof(bits));
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return bits >> 8;
#else
  return bits & ((UINT64_C(1) << 56) - 1);
#endif
}


static uint32_t four (const char *s) {
  uint32_t bits;
  memcpy(&bits, s, sizeof(bits));
  return bits;
}


/*
** A polynomial over blocks of at most seven bytes, at a secret point, modulo a prime. Any two texts of n
** blocks have the same value for no more than n + 8 of the 2^61 points. The last blocks may overlap those
** before them. For long texts the powers of the point are computed four at a time, which a processor does in
** parallel.
*/
LUA_API unsigned int keyfast_hash (const char *s, size_t l) {
  uint64_t h = multiply(start + l, point);
  if (l >= 8) {
    if (l >= 64) {
      uint64_t a = h, b = 0, c = 0, d = 0;
      for (; l >= 4 * 7 + 8; s += 4 * 7, l -= 4 * 7) {
        a = multiply(a + seven(s), point4);
        b = multiply(b + seven(s + 7), point4);
        c = multiply(c + seven(s + 14), point4);
        d = multiply(d + seven(s + 21), point4);
      }
      h = multiply(multiply(multiply(a, point) + b, point) + c, point) + d;
    }
    for (; l > 8; s += 7, l -= 7)
      h = multiply(h + seven(s), point);
    h = multiply(h + four(s + l - 8), point);
    h = multiply(h + four(s + l - 4), point);
  }
  else if (l >= 4) {
    h = multiply(h + four(s), point);
    h = multiply(h + four(s + l - 4), point);
  }
  else if (l > 0) {
    h += (unsigned char)s[0] | (unsigned char)s[l / 2] << 8 | (unsigned char)s[l - 1] << 16;
    h = multiply(h, point);
  }
  return keyfast_scatter(h);
}


LUA_API unsigned int keyfast_scatter (unsigned long long bits) {
  return (unsigned int)((bits * factor) >> 32);
}


LUA_API unsigned int keyfast_order (const char *s, size_t l) {
  unsigned int h = (unsigned int)l;
  for (; l >= 1; l--)
    h = h ^ ((h<<5) + (h>>2) + (unsigned char)s[l-1]);
  return h;
}

/* }====================================================== */
