// Package crew runs functions side by side for one caller. What one of them panics
// with, the caller panics with: a panic that leaves a goroutine ends the process, and
// whoever contains the caller's panic contains all of them.
package crew

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Fault is what a function panicked with, and the stack of its goroutine.
type Fault struct {
	Value any
	Stack []byte
}

// String returns both, for a panic that nobody contains.
func (f *Fault) String() string { return fmt.Sprintf("%v\n\n%s", f.Value, f.Stack) }

// Catch calls f and returns what it panicked with; nil if it returned.
func Catch(f func()) (fault *Fault) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		var known bool
		if fault, known = v.(*Fault); !known {
			fault = &Fault{Value: v, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}

// Group waits for functions that run side by side. Its zero value is ready.
type Group struct {
	// Stop, if it is not nil, is called when one of them panics, so that the others
	// end.
	Stop func()

	all   sync.WaitGroup
	fault atomic.Pointer[Fault]
}

// Go calls f in a goroutine of its own.
func (g *Group) Go(f func()) {
	g.all.Go(func() {
		if fault := Catch(f); fault != nil && g.fault.CompareAndSwap(nil, fault) && g.Stop != nil {
			g.Stop()
		}
	})
}

// Wait waits until all have ended. It panics with the *Fault of the first that
// panicked.
func (g *Group) Wait() {
	g.all.Wait()
	if fault := g.fault.Load(); fault != nil {
		panic(fault)
	}
}
