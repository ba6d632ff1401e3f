package process

import (
	"sync"
	"time"
)

// toldAfter is how long after the end of a job the database knows of it, at most.
const toldAfter = lostAfter / 2

// working are the jobs that this process works on, by id, and how often each. The
// database may have more: River takes jobs by one statement, and if the connection
// breaks before its answer is read nobody knows of them.
type working struct {
	mu   sync.Mutex
	jobs map[int64]int
}

// WorksOn says that this process works on a job until done is called.
func (p *Process) WorksOn(jobID int64) (done func()) {
	w, began := &p.working, time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs == nil {
		w.jobs = map[int64]int{}
	}
	w.jobs[jobID]++
	return func() {
		if time.Since(began) < lostAfter-toldAfter { // it is not missed before its end is told
			w.forget(jobID)
			return
		}
		time.AfterFunc(toldAfter, func() { w.forget(jobID) })
	}
}

func (w *working) forget(jobID int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs[jobID]--; w.jobs[jobID] == 0 {
		delete(w.jobs, jobID)
	}
}

func (w *working) ids() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]int64, 0, len(w.jobs))
	for id := range w.jobs {
		ids = append(ids, id)
	}
	return ids
}
