//! How much of the program itself is in memory.
//!
//! Only the start needed half of the memory that an idle server had resident: the system maps 64 KiB of a
//! file around each page that is used, and a start uses a little of nearly everything. So the server unmaps
//! all of it once it is ready. If a part is needed again, the system maps it from its cache of the file, in
//! about a microsecond for each 64 KiB. Measured when idle: 3.7 MiB instead of 6.2 to 6.7.
//!
//! Linux alone lists the mappings in a file, and maps so much at once. On macOS the program stays.

#[cfg(target_os = "linux")]
pub(crate) use linux::let_go_of_program;

/// Would unmap the code and the constants of the program. Here it does nothing.
#[cfg(not(target_os = "linux"))]
pub(crate) fn let_go_of_program() {}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod linux {
    use std::fs;
    use std::ops::Range;

    /// Unmaps the code and the constants of the program and of its libraries; whatever is needed comes back.
    pub(crate) fn let_go_of_program() {
        for Range { start, end } in fs::read_to_string("/proc/self/smaps").iter().flat_map(|map| program(map))
        {
            // SAFETY: the range is a read-only mapping of a file into this process, and no page of it has
            // become anonymous: all of them are as in the file. That the system lets go of such pages when
            // memory is short, and reads them again from there, goes for any program at any time.
            unsafe {
                libc::madvise(std::ptr::without_provenance_mut(start), end - start, libc::MADV_DONTNEED)
            };
        }
    }

    /// The mappings that are exactly what a file has, can only be read or executed, and of which something is
    /// in memory. An emulator (qemu-user, by which Docker runs images of other machines) knows nothing of
    /// that, and says so of all mappings: nothing in memory, nothing anonymous. Some of their pages have been
    /// relocated.
    ///
    /// `smaps` is as in proc(5): a line with addresses, rights, offset, device, inode and path for each
    /// mapping, then lines with what is to be known of it.
    fn program(smaps: &str) -> impl Iterator<Item = Range<usize>> {
        let mut mapping = None;
        smaps.lines().filter_map(move |line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [addresses, rights, _, _, inode, ..] if !addresses.ends_with(':') => {
                mapping = range(addresses).filter(|_| matches!(rights, "r-xp" | "r--p") && inode != "0");
                None
            }
            ["Rss:", "0", "kB"] => {
                mapping = None;
                None
            }
            ["Anonymous:", "0", "kB"] => mapping.take(),
            _ => None,
        })
    }

    fn range(addresses: &str) -> Option<Range<usize>> {
        let (start, end) = addresses.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const SMAPS: &str = "\
55a7d14aa000-55a7d15ff000 r--p 00000000 fe:00 10362887                   /usr/bin/key fast
Rss:                1364 kB
Anonymous:             0 kB
55a7d15ff000-55a7d1b33000 r-xp 00154000 fe:00 10362887                   /usr/bin/key fast
Size:               5328 kB
Rss:                2748 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
55a7d1b33000-55a7d1b6f000 r--p 00687000 fe:00 10362887                   /usr/bin/key fast
Anonymous:           212 kB
7f1b68d06000-7f1b68e5c000 r-xp 00026000 fe:00 326279                     /usr/lib/libc.so.6
Rss:                1000 kB
Anonymous:             4 kB
7f1b68f00000-7f1b68f01000 rwxp 00000000 fe:00 326280                     /usr/lib/strange.so
Anonymous:             0 kB
7fffe79a0000-7fffe79a2000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
";

        #[test]
        fn only_what_is_as_in_its_file_is_let_go_of() {
            assert!(
                program(SMAPS).eq([0x55a7_d14a_a000..0x55a7_d15f_f000, 0x55a7_d15f_f000..0x55a7_d1b3_3000])
            );
        }

        /// What qemu-user 11 tells a program of itself. The last mapping holds relocated constants.
        const EMULATED: &str = "\
7f0000000000-7f0000155000 r--p 00000000 fe:00 10362887                   /usr/bin/keyfast
Size:               1364 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                   0 kB
Pss:                   0 kB
Private_Dirty:         0 kB
Referenced:            0 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
7f0000687000-7f00006c3000 r--p 00687000 fe:00 10362887                   /usr/bin/keyfast
Size:                240 kB
Rss:                   0 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
";

        #[test]
        fn an_emulator_that_knows_nothing_is_not_believed() {
            assert_eq!(program(EMULATED).count(), 0);
        }

        #[test]
        fn what_was_let_go_of_comes_back() {
            let resident = || {
                let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
                let own = smaps.split("-xp ").nth(1).unwrap();
                let line = own.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
                line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap()
            };
            // So that there is something to let go of, whatever ran before.
            let touched: usize =
                (0..4000).map(|number| format!("{number:?} {:e}", number as f64).len()).sum();
            assert!(touched > 0 && program(&fs::read_to_string("/proc/self/smaps").unwrap()).count() > 0);
            let before = resident();
            let_go_of_program();
            assert!(resident() <= before);
        }
    }
}
