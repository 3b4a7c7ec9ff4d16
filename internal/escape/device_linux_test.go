package escape

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// deviceAttempts reach the machine by devices and by files of the kernel.
func deviceAttempts() []attempt {
	missing := []syscall.Errno{unix.ENOENT, unix.ENXIO, unix.ENODEV}
	rows := []attempt{
		{name: "proc_writable", try: func(*scene) error { return anyWritable("/proc", isProcess) }},
		{name: "sys_writable", try: func(*scene) error { return anyWritable("/sys", nil) }},
		{name: "core_pattern", try: writeSame("/proc/sys/kernel/core_pattern")},
		{name: "sysctl", try: writeSame("/proc/sys/vm/swappiness")},
		{name: "modprobe_path", try: writeSame("/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/panic")},
		{name: "sysrq", absent: missing, try: func(*scene) error { return writeFile("/proc/sysrq-trigger", " ") }},
		{name: "proc_irq", absent: missing, try: func(*scene) error {
			return openFirst(unix.O_RDWR, "/proc/irq/default_smp_affinity", "/proc/irq/*/smp_affinity")
		}},
		{name: "sysfs", absent: missing, try: writeSame("/sys/kernel/mm/transparent_hugepage/defrag", "/sys/kernel/mm/ksm/run", "/sys/kernel/mm/numa/demotion_enabled")},
		{name: "uevent_helper", absent: missing, try: writeSame("/sys/kernel/uevent_helper", "/sys/block/loop0/queue/read_ahead_kb", "/sys/module/printk/parameters/time")},
		{name: "kernel_log", absent: missing, try: func(*scene) error { return openFirst(unix.O_RDWR, "/dev/kmsg") }},
		{name: "memory_device", absent: missing, try: func(*scene) error { return openFirst(unix.O_RDWR, "/dev/mem", "/dev/port", "/dev/kmem") }},
		{name: "disk_device", absent: missing, try: func(*scene) error {
			return openFirst(unix.O_RDONLY, "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0")
		}},
		{name: "loop_control", absent: missing, try: func(*scene) error { return openFirst(unix.O_RDWR, "/dev/loop-control") }},
		{name: "fuse_device", absent: missing, try: func(*scene) error { return openFirst(unix.O_RDWR, "/dev/fuse") }},
		{name: "hypervisor_device", absent: missing, try: func(*scene) error { return openFirst(unix.O_RDWR, "/dev/kvm", "/dev/vhost-net", "/dev/net/tun") }},
		{name: "console_device", absent: missing, try: func(*scene) error { return openFirst(unix.O_RDWR, "/dev/console", "/dev/tty0", "/dev/ttyS0") }},
		{name: "mknod_block", try: func(*scene) error { return makeDevice(unix.S_IFBLK, 7, 0) }},
		{name: "mknod_memory", try: func(*scene) error { return makeDevice(unix.S_IFCHR, 1, 1) }},
		{name: "mknod_kernel_log", try: func(*scene) error { return makeDevice(unix.S_IFCHR, 1, 11) }},
	}
	for i := range rows {
		rows[i].group, rows[i].who, rows[i].alone = "devices", root, []string{byFilesystem}
	}
	return rows
}

func writeFile(name, text string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return at("open", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return at("write", err)
}

// openFirst opens the first of the files that exists. Opening it is enough: an attempt
// that wrote would harm the machine.
func openFirst(mode int, patterns ...string) error {
	var last error = unix.ENOENT
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			fd, err := unix.Open(name, mode|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				return unix.Close(fd)
			}
			last = err
		}
	}
	return at("open", last)
}

// makeDevice makes a device file in the writable root and opens it. The kernel checks
// the permission before it looks for the device.
func makeDevice(kind, major, minor uint32) error {
	name := work + "/device"
	if err := unix.Mknod(name, kind|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return at("mknod", err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		return errors.Join(unix.Close(fd), os.Remove(name))
	}
	return past("open", err, unix.ENXIO, unix.ENODEV)
}

// isProcess reports whether an entry of /proc belongs to a process, or leads to one.
func isProcess(name string) bool {
	return strings.ContainsAny(name[:1], "0123456789") || name == "self" || name == "thread-self" || name == "net"
}

// anyWritable gets through if any file below a directory of the kernel could be written.
// It asks without opening: some act when they are opened.
func anyWritable(top string, skip func(string) bool) error {
	var writable []string
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it cannot be read, or is gone
		case d.IsDir() && skip != nil && filepath.Dir(name) == top && skip(d.Name()):
			return fs.SkipDir
		case d.Type().IsRegular() && unix.Access(name, unix.W_OK) == nil:
			writable = append(writable, name)
		}
		return nil
	})
	if err != nil || len(writable) == 0 {
		return errors.Join(err, without("access", "nothing is writable"))
	}
	fmt.Fprintln(os.Stderr, len(writable), "files, such as", writable[:min(len(writable), 10)])
	return nil
}
