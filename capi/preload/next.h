#define EXPORT __attribute__((visibility("default")))

/* The next definition of a function, which is the C library's or that of another preloaded object. Looked up once. */
#define NEXT(name)                                                                                 \
	({                                                                                         \
		static __typeof__(&name) next;                                                     \
		__typeof__(&name) known = __atomic_load_n(&next, __ATOMIC_RELAXED);                \
		if (known == NULL) {                                                               \
			known = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                        \
			__atomic_store_n(&next, known, __ATOMIC_RELAXED);                          \
		}                                                                                  \
		known;                                                                             \
	})
