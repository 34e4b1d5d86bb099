/*
** What the interpreter has beyond Lua 5.1.5. lua.h includes this file.
*/

#ifndef keyfast_additions_h
#define keyfast_additions_h

/*
** Tables that cannot be written, as in Redis: what scripts share.
*/
#define KEYFAST_READONLY	"Attempt to modify a readonly table"

LUA_API void keyfast_setreadonly (lua_State *L, int idx);
/* the same as lua_rawset and lua_rawseti, for the server, which may write such tables */
LUA_API void keyfast_rawset (lua_State *L, int idx);

/*
** Room for one more value of a function that has got as many results as there was room for: there are always
** some slots behind the last one.
*/
LUA_API void keyfast_makeroom (lua_State *L);

/*
** Work that is no instruction of a script. One unit takes about as long as an instruction.
**
** To charge is safe wherever Lua is: the hook that looks at the time runs before the script's next
** instruction. To work lets the hook run at once if it is due, which may raise an error: only for functions
** that scripts call, where they may raise errors anyway and keep no addresses within the stack.
*/
LUA_API void keyfast_charge (lua_State *L, size_t units);
LUA_API void keyfast_work (lua_State *L, size_t units);
/* passes the instruction count from a coroutine's resumer to the coroutine, and back */
LUA_API void keyfast_passcount (lua_State *from, lua_State *to);

/* so many bytes that are copied, compared or hashed are one unit */
#define KEYFAST_UNITBYTES	16
/* so many values that are copied are one unit */
#define KEYFAST_UNITVALUES	4

/*
** A script that was killed: nothing in it catches the error that ends it, and no message handler runs.
*/
LUA_API void keyfast_setending (lua_State *L, int ending);
LUA_API int keyfast_isending (lua_State *L);

/*
** Hashes of strings. The secrets are for the whole process, and set before the first state is made.
*/
LUA_API void keyfast_setsecrets (unsigned long long first, unsigned long long second,
                                 unsigned long long third);
/* the place of a string among all strings */
LUA_API unsigned int keyfast_hash (const char *s, size_t l);
/* the place of a string among the keys of a table, which makes the order of pairs: that of Redis */
LUA_API unsigned int keyfast_order (const char *s, size_t l);
/* the place of a key where too many keys of a table have the same one */
LUA_API unsigned int keyfast_scatter (unsigned long long bits);

#endif
