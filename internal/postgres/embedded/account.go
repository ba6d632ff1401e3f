package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the operating system user that the server runs as. PostgreSQL
// refuses to run as root.
type account struct {
	uid, gid uint32
	name     string
	drop     bool // this process is root and the server is not
}

// serverAccount chooses the user: this process's own, or, for root, the owner
// of an existing cluster, else postgres, else nobody.
func serverAccount(p *place) (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		return account{uid: uint32(uid), gid: uint32(os.Getegid()), name: strconv.Itoa(uid)}, nil
	}
	info, err := os.Stat(p.cluster)
	if err == nil {
		owner := statOf(info)
		if owner.Uid == 0 {
			return account{}, fmt.Errorf("%s belongs to root, as whom PostgreSQL refuses to run: give it to another user (chown -R)", p.cluster)
		}
		return account{uid: owner.Uid, gid: owner.Gid, name: strconv.Itoa(int(owner.Uid)), drop: true}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return account{}, fmt.Errorf("data directory: %w", err)
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{uid: uint32(uid), gid: uint32(gid), name: name, drop: true}, nil
		}
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as: start tranche as another user")
}

// own gives a file to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// apply makes a command run as the account, away from directories it may not
// enter and without the caller's PG* variables.
func (a account) apply(cmd *exec.Cmd) {
	cmd.Dir = "/"
	cmd.Env = plainEnvironment()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if a.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

// checkReach says which directory on the way to path is closed to the account.
func (a account) checkReach(path, remedy string) error {
	if !a.drop {
		return nil
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !a.mayEnter(info) {
			return fmt.Errorf("%s cannot be reached by the user %s, as whom PostgreSQL runs because it refuses to run as root: %s is closed to it; %s", path, a.name, dir, remedy)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (a account) mayEnter(info fs.FileInfo) bool {
	owner := statOf(info)
	switch perm := info.Mode().Perm(); {
	case owner.Uid == a.uid:
		return perm&0o100 != 0
	case owner.Gid == a.gid:
		return perm&0o010 != 0
	default:
		return perm&0o001 != 0
	}
}

// statOf is what os.Stat knows of a file on every Unix.
func statOf(info fs.FileInfo) *syscall.Stat_t {
	return info.Sys().(*syscall.Stat_t) //nolint:errcheck // see above
}
