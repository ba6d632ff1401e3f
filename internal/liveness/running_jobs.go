package liveness

import (
	"sync"
	"time"
)

// recordedAfter is the time within which the database learns that a job has ended.
const recordedAfter = lostAfter / 2

// runningJobs counts how often this process runs each job, by id. The database may assign
// more jobs to this process: River fetches jobs with one statement, and if the connection
// breaks before the response is read, the process does not know of them.
type runningJobs struct {
	mu   sync.Mutex
	jobs map[int64]int
}

// TrackJob records that this process runs a job until done is called.
func (p *Process) TrackJob(jobID int64) (done func()) {
	r, began := &p.jobs, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs == nil {
		r.jobs = map[int64]int{}
	}
	r.jobs[jobID]++
	return func() {
		if time.Since(began) < lostAfter-recordedAfter {
			r.remove(jobID) // its end is recorded before it could count as lost
			return
		}
		time.AfterFunc(recordedAfter, func() { r.remove(jobID) })
	}
}

func (r *runningJobs) remove(jobID int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs[jobID]--; r.jobs[jobID] == 0 {
		delete(r.jobs, jobID)
	}
}

func (r *runningJobs) ids() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]int64, 0, len(r.jobs))
	for id := range r.jobs {
		ids = append(ids, id)
	}
	return ids
}
