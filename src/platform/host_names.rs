//! How a static program finds the addresses of hosts.
//!
//! GNU's C library reads in `/etc/nsswitch.conf` which modules it shall ask, and loads them. Fedora, Arch and
//! Ubuntu name `myhostname`, `resolve` or `mymachines` there. A static program has another C library in
//! itself than the module was made for, and dies when it asks the module. So a static program asks the two
//! ways that are in the library itself: `/etc/hosts`, and name servers by `/etc/resolv.conf`. The same goes
//! for users: a program may ask for a home directory if `HOME` is not set.
//!
//! Other C libraries, such as musl and that of macOS, have no such modules.

#![allow(unsafe_code)]

/// Has names looked up without modules, if the program is static. To be called before anything else.
pub fn prepare() {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_feature = "crt-static"))]
    {
        use std::ffi::{CStr, c_char, c_int};

        unsafe extern "C" {
            fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
        }
        const WAYS: &[(&CStr, &CStr)] =
            &[(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files"), (c"services", c"files")];
        for (database, services) in WAYS {
            // SAFETY: both are texts with an end, which the function only reads. No other thread runs yet.
            // If it fails, the ways are those of the file.
            unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        }
    }
}
