/*
 * A disk whose syncs can fail, and that forgets what was not synced. The tests preload it into a server.
 *
 * Of each file below DISK_ROOT it keeps a copy of what the last sync has found, in DISK_KEPT/files, by the
 * file's inode number. Of each folder it keeps a list of its names, in DISK_KEPT/folders. After a kill the test
 * puts the copies together (mod.rs): that is what a machine finds that has lost its power.
 *
 * A sync fails if DISK_FAULTS has a file of the same name, or one that is called sync-N when this is the
 * server's Nth sync (DISK_KEPT/syncs has the number of the last one). That file is removed. What was written
 * since the sync before then never comes to the disk, and the next sync succeeds, as in Linux.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int syncs; /* so far */

/* The path of a file that is this disk's matter. */
static int is_ours(const char *path) {
    const char *root = getenv("DISK_ROOT");
    return root && strncmp(path, root, strlen(root)) == 0;
}

static void name_of(char *to, const char *folder, unsigned long inode, const char *ending) {
    snprintf(to, PATH_MAX, "%s/%s/%lu%s", getenv("DISK_KEPT"), folder, inode, ending);
}

/* The system's own functions, for files of this disk. */
static int delete(const char *path) {
    return ((int (*)(const char *))dlsym(RTLD_NEXT, "unlink"))(path);
}
static int replace(const char *by, const char *path) {
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(by, path);
}

/* Waits while the test holds back the syncs of a file of this name. It may let a single one pass. */
static void wait_for_leave(const char *path) {
    char held[PATH_MAX], passing[PATH_MAX];
    const char *faults = getenv("DISK_FAULTS"), *name = strrchr(path, '/') + 1;
    snprintf(held, sizeof held, "%s/hold-%s", faults, name);
    snprintf(passing, sizeof passing, "%s/pass-%s", faults, name);
    while (access(held, F_OK) == 0 && delete(passing) != 0) usleep(1000);
}

static int has_to_fail(const char *path) {
    char fault[PATH_MAX];
    const char *faults = getenv("DISK_FAULTS");
    snprintf(fault, sizeof fault, "%s/%s", faults, strrchr(path, '/') + 1);
    int fails = delete(fault) == 0;
    snprintf(fault, sizeof fault, "%s/syncs", getenv("DISK_KEPT"));
    FILE *count = fopen(fault, "w");
    fprintf(count, "%d", ++syncs);
    fclose(count);
    snprintf(fault, sizeof fault, "%s/sync-%d", faults, syncs);
    return delete(fault) == 0 || fails;
}

/* Notes which bytes of a file never come to the disk. */
static void lose(unsigned long inode, off_t until) {
    char copy[PATH_MAX], gaps[PATH_MAX];
    struct stat kept;
    name_of(copy, "files", inode, "");
    name_of(gaps, "files", inode, ".gaps");
    off_t from = stat(copy, &kept) == 0 ? kept.st_size : 0;
    FILE *file = fopen(gaps, "a");
    fprintf(file, "%lld %lld\n", (long long)from, (long long)until);
    fclose(file);
}

static void keep_file(int fd, unsigned long inode) {
    char path[PATH_MAX], new_copy[PATH_MAX], copy[PATH_MAX], gaps[PATH_MAX], bytes[65536];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    name_of(copy, "files", inode, "");
    name_of(new_copy, "files", inode, ".new");
    name_of(gaps, "files", inode, ".gaps");
    int from = open(path, O_RDONLY), to = open(new_copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t count;
    while ((count = read(from, bytes, sizeof bytes)) > 0)
        if (write(to, bytes, count) != count) abort();
    close(from);
    memset(bytes, 0, sizeof bytes);
    FILE *file = fopen(gaps, "r");
    long long begin, end;
    while (file && fscanf(file, "%lld %lld", &begin, &end) == 2)
        for (; begin < end; begin++)
            if (pwrite(to, bytes, 1, begin) != 1) abort();
    if (file) fclose(file);
    close(to);
    replace(new_copy, copy);
}

static void keep_folder(const char *path, unsigned long inode) {
    char list[PATH_MAX], new_list[PATH_MAX], name[PATH_MAX + 256];
    struct stat entry;
    name_of(list, "folders", inode, "");
    name_of(new_list, "folders", inode, ".new");
    FILE *file = fopen(new_list, "w");
    DIR *folder = opendir(path);
    for (struct dirent *next; (next = readdir(folder));) {
        snprintf(name, sizeof name, "%s/%s", path, next->d_name);
        if (next->d_name[0] != '.' && stat(name, &entry) == 0)
            fprintf(file, "%c %lu %s\n", S_ISDIR(entry.st_mode) ? 'd' : 'f', (unsigned long)entry.st_ino,
                    next->d_name);
    }
    closedir(folder);
    fclose(file);
    replace(new_list, list);
}

static int sync_file(int fd) {
    char link[64], path[PATH_MAX];
    struct stat file;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0 || fstat(fd, &file) != 0) return -1;
    path[length] = 0;
    if (!is_ours(path)) return 0;
    wait_for_leave(path);
    pthread_mutex_lock(&lock);
    int fails = has_to_fail(path);
    if (S_ISDIR(file.st_mode)) {
        if (!fails) keep_folder(path, file.st_ino);
    } else if (fails) {
        lose(file.st_ino, file.st_size);
    } else {
        keep_file(fd, file.st_ino);
    }
    pthread_mutex_unlock(&lock);
    if (fails) errno = EIO;
    return fails ? -1 : 0;
}

int fsync(int fd) { return sync_file(fd); }
int fdatasync(int fd) { return sync_file(fd); }

/* Another file may not get the inode number of one that is gone. */
static void hold_inode(const char *path) {
    char held[PATH_MAX];
    struct stat file;
    if (!is_ours(path) || stat(path, &file) != 0 || !S_ISREG(file.st_mode)) return;
    name_of(held, "held", file.st_ino, "");
    if (link(path, held) != 0 && errno != EEXIST) abort();
}

int unlink(const char *path) {
    pthread_mutex_lock(&lock);
    hold_inode(path);
    int result = delete(path);
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *from, const char *to) {
    pthread_mutex_lock(&lock);
    hold_inode(to);
    int result = replace(from, to);
    pthread_mutex_unlock(&lock);
    return result;
}
