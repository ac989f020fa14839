package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pgshoal/pgshoal/fault"
)

// process is a router or a controller, a child of the test, so that the kernel tells when it stops or ends.
type process struct {
	name, kind string // kind is router or controller
	binary     string
	args       []string
	log        string
	owners     *owners
	events     chan<- event

	sent syscall.Signal // that it got at random; of the faults alone

	mu      sync.Mutex
	pid     int // 0 while it is down
	stopped bool
	ended   chan struct{}
}

// event says that a process has stopped or ended, by itself or by a signal.
type event struct {
	process *process
	stopped bool
	life    int // the pid of the life that it is about
}

func (p *process) start(t *testing.T, rule string) {
	t.Helper()
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.sent = 0
	started := make(chan error)
	ended := make(chan struct{})
	p.ended = ended
	go func() {
		// The child is killed when the thread ends that started it: a test that dies leaves nothing behind.
		runtime.LockOSThread()
		child, err := os.StartProcess(p.binary, append([]string{p.binary}, p.args...), &os.ProcAttr{
			Dir: filepath.Dir(p.log), Files: []*os.File{nil, log, log}, Env: append(os.Environ(), fault.Variable+"="+rule),
			Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
		})
		if err == nil {
			p.set(child.Pid, false)
			p.owners.set(child.Pid, p.name)
		}
		started <- err
		if err == nil {
			p.follow(child.Pid)
			close(ended)
		}
		runtime.UnlockOSThread()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
}

// follow reports what happens to the process until it has ended.
func (p *process) follow(pid int) {
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err == syscall.EINTR {
			continue
		}
		if status.Stopped() {
			p.set(pid, true)
			p.events <- event{process: p, stopped: true, life: pid}
			continue
		}
		p.owners.set(pid, "")
		p.set(0, false)
		p.events <- event{process: p, life: pid}
		return
	}
}

func (p *process) set(pid int, stopped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.stopped = pid, stopped
}

// up reports whether it runs.
func (p *process) up() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid != 0 && !p.stopped
}

// signal sends a signal to the life that runs now, if any.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 {
		_ = syscall.Kill(p.pid, s)
		p.stopped = p.stopped && s != syscall.SIGCONT
	}
}

// kill ends it for good, at the end of the test.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// point is the fault point that it has acted at last.
func (p *process) point() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	line := string(text[strings.LastIndex("\n"+string(text), "\n"+fault.Line):])
	name, _, _ := strings.Cut(strings.TrimPrefix(line, fault.Line), ":")
	return name
}

// tail is the end of its log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Sprintf("%s wrote last:\n%s", p.name, strings.Join(lines[max(0, len(lines)-15):], "\n"))
}
