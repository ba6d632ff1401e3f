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

// account is the operating system user of the server. PostgreSQL does not run as root.
type account struct {
	uid, gid uint32
	name     string
	drop     bool // this process is root, so the server needs another user
}

// serverAccount returns the user of the server: the user of this process or, for root, the owner
// of the cluster, otherwise postgres, otherwise nobody.
func serverAccount(p *dataDir) (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		return account{uid: uint32(uid), gid: uint32(os.Getegid()), name: strconv.Itoa(uid)}, nil
	}
	info, err := os.Stat(p.cluster)
	if err == nil {
		owner := statOf(info)
		if owner.Uid == 0 {
			return account{}, fmt.Errorf("%s belongs to root, and PostgreSQL does not run as root: give it to another user (chown -R)", p.cluster)
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
	return account{}, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody: start tranche as another user")
}

// own makes the account the owner of a file.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// apply makes a command run as the account, in a directory that the account may enter and
// without the PG* variables of this process.
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

// checkReach returns an error if the account may not enter a directory of path.
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
			return fmt.Errorf("PostgreSQL runs as user %[2]s, because it does not run as root, and that user cannot reach %[1]s: it may not enter %[3]s; %[4]s", path, a.name, dir, remedy)
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

// statOf returns the system's data of a file, which every Unix has.
func statOf(info fs.FileInfo) *syscall.Stat_t {
	return info.Sys().(*syscall.Stat_t) //nolint:errcheck // see above
}
