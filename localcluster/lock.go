package localcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// dirLock is held by the supervisor for its whole life; the kernel lets go when it dies.
type dirLock struct{ file *os.File }

// RunningError says that another supervisor holds the directory.
type RunningError struct{ Dir string }

func (e *RunningError) Error() string {
	return fmt.Sprintf("the cluster in %s is running already", e.Dir)
}

func lockDir(l Layout) (*dirLock, error) {
	f, err := os.OpenFile(l.lockFile(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, &Problem{
			Sentence: fmt.Sprintf("%s cannot be written: %v", l.lockFile(), errors.Unwrap(err)),
			Way:      "run the command as the user who created the cluster, or choose another directory with --dir",
			Cause:    err,
		}
	}
	if err := flock(f); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &RunningError{Dir: l.Dir}
		}
		return nil, fmt.Errorf("lock %s: %w", l.lockFile(), err)
	}
	lock := &dirLock{file: f}
	self, ok := findProcess(os.Getpid())
	if !ok {
		lock.release()
		return nil, errors.New("/proc is needed to tell processes apart")
	}
	if err := writePID(l.pidFile(titleUp), self); err != nil {
		lock.release()
		return nil, err
	}
	return lock, nil
}

// flock tries for a moment, because somebody who only looks holds the lock for an instant too.
func flock(f *os.File) error {
	var err error
	for range 5 {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func (l *dirLock) release() { _ = l.file.Close() }

// supervised tells whether a supervisor holds the directory.
func supervised(l Layout) (bool, error) {
	f, err := os.Open(l.lockFile())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
