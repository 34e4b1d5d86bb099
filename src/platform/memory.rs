//! How much memory the process has, and how much it may have.
//!
//! Linux shows both in files of `/proc`. macOS has a call for the first. The second is among the values that
//! every other Unix system tells by `sysconf`. On Linux a group of processes may have less than the machine,
//! and a container nearly always is such a group (cgroup).

#![cfg_attr(not(target_os = "linux"), allow(unsafe_code))]

/// Bytes of memory that the system holds for this process; 0 if it does not say.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes() -> usize {
    kilobytes(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmRSS:")
}

/// Bytes of memory that this process may have: those of the machine, or of its container. 0 if the system
/// does not say.
#[cfg(target_os = "linux")]
pub(crate) fn available_bytes() -> usize {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = kilobytes(&read("/proc/meminfo"), "MemTotal:");
    let limits = groups::limits(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    limits.filter_map(|file| read(file.to_str()?).trim().parse().ok()).fold(machine, usize::min)
}

/// The bytes on the line that begins with `name`, in a file of `/proc`; 0 if there is no such file.
#[cfg(target_os = "linux")]
fn kilobytes(text: &str, name: &str) -> usize {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    number.unwrap_or(0) * 1024
}

/// Bytes of memory that the system holds for this process; 0 if it does not say.
#[cfg(target_os = "macos")]
pub(crate) fn resident_bytes() -> usize {
    let bytes = size_of::<libc::proc_taskinfo>() as libc::c_int;
    // SAFETY: all fields are numbers, for which zeros are a value.
    let mut info: libc::proc_taskinfo = unsafe { std::mem::zeroed() };
    let process = std::process::id() as libc::c_int;
    let buffer = (&raw mut info).cast();
    // SAFETY: the function writes no more than `bytes` to the buffer, which has as many.
    let written = unsafe { libc::proc_pidinfo(process, libc::PROC_PIDTASKINFO, 0, buffer, bytes) };
    if written == bytes { info.pti_resident_size as usize } else { 0 }
}

/// Bytes of memory that the system holds for this process: here the system does not say.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn resident_bytes() -> usize {
    0
}

/// Bytes of memory that this process may have: those of the machine. 0 if the system does not say.
#[cfg(not(target_os = "linux"))]
pub(crate) fn available_bytes() -> usize {
    // SAFETY: the function only reads its argument, and may be called at any time.
    let value = |name| usize::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0);
    value(libc::_SC_PHYS_PAGES) * value(libc::_SC_PAGESIZE)
}

/// The groups of processes that limit memory.
///
/// A process is in one group of version 2, or in one of version 1 for each kind of resource, by
/// `/proc/self/cgroup`. The limits of a group and of all above it hold. Which folder is the group's is a
/// matter of where its file system is mounted, and from which group on: a container mostly sees its own group
/// as the root.
#[cfg(target_os = "linux")]
mod groups {
    use std::path::{Path, PathBuf};

    /// The files with the limits of memory of the process's group and of those above it. Some may not exist,
    /// or hold a word: `max`.
    pub(super) fn limits(cgroup: &str, mountinfo: &str) -> impl Iterator<Item = PathBuf> + use<> {
        let versions = [("cgroup2", "", "memory.max"), ("cgroup", "memory", "memory.limit_in_bytes")];
        let found = versions.map(|(kind, controller, file)| {
            let group = group_of(cgroup, controller)?;
            let (root, mounted_at) = mountinfo.lines().find_map(|line| mounted(line, kind, controller))?;
            // A group that is not below the mounted one is above it, and is not seen.
            let below = Path::new(group).strip_prefix(root).ok().filter(|below| !below.starts_with(".."));
            let below = below.unwrap_or(Path::new(""));
            let folder = Path::new(mounted_at).join(below);
            let above = folder.ancestors().take(below.iter().count() + 1);
            Some(above.map(|folder| folder.join(file)).collect::<Vec<_>>())
        });
        found.into_iter().flatten().flatten()
    }

    /// The group for a kind of resource; the one of version 2 has none. A line is as `4:memory,pids:/a/b`.
    fn group_of<'a>(cgroup: &'a str, controller: &str) -> Option<&'a str> {
        cgroup.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            controllers.split(',').any(|other| other == controller).then_some(group)
        })
    }

    /// The mounted group and where it is, if a line of `mountinfo` is about such a file system: proc(5).
    fn mounted<'a>(line: &'a str, kind: &str, controller: &str) -> Option<(&'a str, &'a str)> {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let is_kind = system.next()? == kind;
        let has_controller = system.nth(1)?.split(',').any(|option| option == controller);
        let mut mount = mount.split(' ').skip(3);
        (is_kind && (has_controller || controller.is_empty())).then_some((mount.next()?, mount.next()?))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[track_caller]
        fn are(cgroup: &str, mountinfo: &str, expected: &[&str]) {
            let found: Vec<_> = limits(cgroup, mountinfo).collect();
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
        }

        #[test]
        fn a_group_of_version_2_is_limited_by_those_above_it() {
            let mounts = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
            are(
                "0::/user.slice/a.service\n",
                mounts,
                &[
                    "/sys/fs/cgroup/user.slice/a.service/memory.max",
                    "/sys/fs/cgroup/user.slice/memory.max",
                    "/sys/fs/cgroup/memory.max",
                ],
            );
            // In a container.
            are("0::/\n", mounts, &["/sys/fs/cgroup/memory.max"]);
            // A process that was moved out of it, and one of which the mounted group is not above.
            are("0::/../other\n", mounts, &["/sys/fs/cgroup/memory.max"]);
            are("0::/other\n", &mounts.replace(" / ", " /here "), &["/sys/fs/cgroup/memory.max"]);
            are("0::/\n", "", &[]);
            are("", mounts, &[]);
        }

        #[test]
        fn of_version_1_the_group_for_memory_counts() {
            let mounts = "\
                33 25 0:30 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
                34 25 0:31 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
            let group = "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab/inner:1\n1:name=systemd:/docker/ab\n";
            let expected = ["inner:1/memory.limit_in_bytes", "memory.limit_in_bytes"]
                .map(|file| format!("/sys/fs/cgroup/memory/{file}"));
            are(group, mounts, &expected.each_ref().map(String::as_str));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_memory_and_the_machine_has_more() {
        assert!(resident_bytes() > 0 && available_bytes() > resident_bytes());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn lines_of_the_system_are_read() {
        assert_eq!(kilobytes("VmPeak:\t  9 kB\nVmRSS:\t   12 kB\n", "VmRSS:"), 12 * 1024);
        assert_eq!(kilobytes("", "VmRSS:"), 0);
    }
}
