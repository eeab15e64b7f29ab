package osthread

import (
	"runtime"

	"golang.org/x/sys/unix"

	"striatum/internal/crew"
)

// Go runs f on a thread of its own. It is never the process's first thread,
// which cannot end, and whose state is what others see as the process's.
func Go(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f() // never unlocked: the thread ends with the goroutine
			return
		}
		// While this one holds the first thread, the next gets another.
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f()
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
}

// Do runs f as Go does and returns its error. A panic of f is the caller's.
func Do(f func() error) error {
	done := make(chan *crew.Fault, 1)
	var err error
	Go(func() { done <- crew.Catch(func() { err = f() }) })
	if fault := <-done; fault != nil {
		panic(fault)
	}
	return err
}
