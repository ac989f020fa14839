package ioloop

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loop resumes tasks whose sockets are ready.
type loop struct {
	epoll int

	mu      sync.Mutex
	conns   []*Conn // by file descriptor
	taken   int32   // counts the sockets that came
	ready   []*Task // to be resumed, in the order in which their sockets became ready
	first   int     // ready[:first] are taken
	pollers []*poller
}

// poller is one goroutine that resumes tasks.
type poller struct {
	turns    atomic.Uint64 // odd while a task runs
	replaced atomic.Bool   // its task blocks: another one has its place
}

// patience is how long a task may keep a poller before another takes its place, give or take as much.
const patience = 10 * time.Millisecond

// process is the loop of the process, nil if there can be none.
var process = sync.OnceValue(func() *loop {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	l := &loop{epoll: epoll}
	// Half of the processors are for those who detach, and for PostgreSQL on the same machine.
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		l.pollers = append(l.pollers, l.poll())
	}
	go l.watch()
	return l
})

// poll starts a poller.
func (l *loop) poll() *poller {
	p := &poller{}
	go func() {
		var events [128]unix.EpollEvent
		for {
			if t := l.next(); t != nil {
				p.turns.Add(1)
				t.drive(true)
				p.turns.Add(1)
				continue
			}
			if p.replaced.Load() { // only now: the one that replaces it may wait for sockets and not see what was queued here
				return
			}
			n, errno := look(l.epoll, events[:])
			if n == 0 && errno == 0 {
				n, errno = wait(l.epoll, events[:])
			}
			if errno != 0 && errno != unix.EINTR {
				panic(fmt.Sprintf("ioloop: %v", errno))
			}
			l.signal(events[:n])
		}
	}()
	return p
}

// look is a wait that never waits, so the scheduler needs not know of it. While there is much to do, something always has happened.
func look(epoll int, events []unix.EpollEvent) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// wait waits until something has happened.
func wait(epoll int, events []unix.EpollEvent) (int, syscall.Errno) {
	forever := -1
	n, _, errno := syscall.Syscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(forever), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// next takes the task that has been ready for longest.
func (l *loop) next() *Task {
	var t *Task
	l.mu.Lock()
	if l.first < len(l.ready) {
		t = l.ready[l.first]
		l.ready[l.first] = nil
		l.first++
	} else {
		l.ready, l.first = l.ready[:0], 0
	}
	l.mu.Unlock()
	return t
}

// signal tells sockets what has happened to them.
func (l *loop) signal(events []unix.EpollEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		c := l.conns[e.Fd]
		if c == nil || c.number != e.Pad {
			continue // closed meanwhile; another socket may have its descriptor
		}
		over := e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0
		if e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 || over {
			l.resume(c.in.signal(over || e.Events&unix.EPOLLRDHUP != 0))
		}
		if e.Events&unix.EPOLLOUT != 0 || over {
			l.resume(c.out.signal(over))
		}
	}
}

// resume queues a task. l.mu is held.
func (l *loop) resume(t *Task) {
	if t != nil {
		l.ready = append(l.ready, t)
	}
}

// later queues a task behind all others that are ready.
func (l *loop) later(t *Task) {
	l.mu.Lock()
	l.resume(t)
	l.mu.Unlock()
}

// watch replaces pollers whose task blocks.
func (l *loop) watch() {
	seen := make([]uint64, len(l.pollers))
	for range time.Tick(patience) {
		for i, p := range l.pollers {
			turns := p.turns.Load()
			if turns%2 == 1 && turns == seen[i] {
				p.replaced.Store(true)
				l.pollers[i], turns = l.poll(), 0
			}
			seen[i] = turns
		}
	}
}

// Take makes a socket one of the loop's; conn is closed. What is no socket comes back as it is.
func Take(conn net.Conn) net.Conn {
	l := process()
	sc, ok := conn.(syscall.Conn)
	if l == nil || !ok {
		return conn
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return conn
	}
	fd := -1
	err = raw.Control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err != nil || fd < 0 {
		return conn
	}
	c := newConn(l, fd, conn)
	_ = conn.Close()
	if err := l.add(c); err != nil {
		_ = c.Close()
	}
	return c
}

func (l *loop) add(c *Conn) error {
	l.mu.Lock()
	if c.fd >= len(l.conns) {
		l.conns = append(l.conns, make([]*Conn, c.fd+64-len(l.conns))...)
	}
	l.conns[c.fd] = c
	l.taken++
	c.number = l.taken
	l.mu.Unlock()
	return l.control(unix.EPOLL_CTL_ADD, c, 0)
}

// control says what to tell of a socket, besides what comes in. Unix sockets report room for output each time the other
// side has read something, which nobody wants to know unless he waits for it.
func (l *loop) control(op int, c *Conn, more uint32) error {
	return unix.EpollCtl(l.epoll, op, c.fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET | more, Fd: int32(c.fd), Pad: c.number,
	})
}

func (l *loop) remove(c *Conn) {
	l.mu.Lock()
	if l.conns[c.fd] == c {
		l.conns[c.fd] = nil
	}
	l.mu.Unlock()
}
