// Package snapshot takes the state of a project: a frozen copy that checks run
// on, and the id of its tree. The worktree, and the repository in it, may belong
// to somebody who means harm and who writes there at the same moment.
//
// What is part. Regular files and symbolic links: those that git tracks, and
// those that it does not track and does not ignore. Ignore rules are the tree's
// own .gitignore files (package ignore), nothing else. Never part: every .git, and
// .striatum at the top. Folders are part only by what is in them. The files of a
// nested repository or a submodule are taken as plain files. A FIFO, a socket, a
// device that is not ignored, and a .striatum or verification that is a link, is
// a RefusedError with its path. A commit's blobs are taken whatever the rules say.
//
// The bytes are raw: no end-of-line, ident, filter or encoding conversion. A mode
// is 100644, 100755 (the owner may execute it) or 120000.
//
// The tree id is git's own, in a repository of SHA-256 ids: of the tree object
// that "git add -A" and "git write-tree" make when .git/info/attributes says
// "* -text -eol -ident -filter -working-tree-encoding".
//
// The manifest has a line for each file and link, folders walked in git's order:
//
//	mode SP sha-256 of the content SP bytes SP path LF
//
// The content of a link is its target. The path is quoted as Quote does.
//
// The frozen tree holds exactly that: files 0644 or 0755, folders 0755, all of
// the process's user, all times the first second of 2000.
//
// No program is started. Everything is opened beneath the worktree's top without
// following a link (package beneath). Every file is read in a state that was the
// same before and after; a folder's list likewise; the rules applied are those
// in the tree. What changes while it is read is read again, then the whole is
// begun anew, then the answer is ErrChanged. The files of one snapshot are still
// read one after the other: it is a state of each file, not a moment of all.
//
// Reuse. A digest is taken from memory only if it was made from bytes read under
// a read lease that nobody broke (so nobody had the file open or mapped for
// writing), of a file whose change time was two seconds old, in this boot, on a
// local file system; and if device, inode, size, mode and both times are still
// equal. Freeze reads every byte all the same, and uses memory to link to the
// previous frozen tree instead of writing what it holds already.
package snapshot
