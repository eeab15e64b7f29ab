# Sets up a system in namespaces of its own, where /etc, /var/lib, /run and /opt are
# copies or empty, and nothing outlives it. $1 has the programs.
set -euo pipefail
mount -t tmpfs -o mode=0755 tmpfs /mnt
cp -a /etc /mnt/etc
mount --bind /mnt/etc /etc
for dir in /var/lib /run /opt; do mount -t tmpfs -o mode=0755 tmpfs $dir; done
install -m 0755 "$1"/* /opt/
unset STRIATUM_HOME STRIATUM_SOCKET STRIATUM_TOKEN_FILE
cd /
for name in alice bob olga; do useradd --no-create-home --shell /bin/sh $name; done
system=(/opt/striatum init --system)
out=/mnt/out
fail() { cat $out >&2; echo "FAILED: $*" >&2; exit 1; }
# want N TEXT COMMAND…: the command must exit with N and print TEXT.
want() {
	local code=$1 text=$2 got=0
	shift 2
	"$@" >$out 2>&1 || got=$?
	[ "$got" = "$code" ] && grep -qF -- "$text" $out || fail "$*: exit $got, want $code with '$text'"
}
as() { local name=$1; shift; setpriv --reuid="$name" --regid="$name" --init-groups env -i PATH=/usr/bin:/bin HOME=/nonexistent "$@"; }
files() { find /etc /var/lib -printf '%p %m %U %G %s %T@\n' | grep -vE 'store.db|^/var/lib/striatumd ' | sort; } # those two are the daemon's
has() { [ "$(stat -c '%a %U %G' "$1")" = "$2" ] || fail "$1 is $(stat -c '%a %U %G' "$1"), want $2"; }

# Nothing is written where it is only shown, refused or not root's.
files >/mnt/before
want 0 'ExecStart=/opt/striatumd serve' "${system[@]}" --print --agent alice
want 0 '"state": "planned"' "${system[@]}" --print --output json
want 7 'this is user' as alice "${system[@]}"
want 2 'no user "carol"' "${system[@]}" --agent carol
want 2 'named twice' "${system[@]}" --agent alice --operator alice
want 2 'give every agent' "${system[@]}" --agent root
want 2 'STRIATUM_SOCKET' env STRIATUM_SOCKET=/run/other "${system[@]}"
want 2 'give --system' /opt/striatum init --print
chmod 0777 /opt
want 3 'an agent could change what runs as root' "${system[@]}" --agent alice
chmod 0755 /opt
chown alice /opt/striatum-init
want 3 'not owned by root' "${system[@]}" --agent alice
chown root /opt/striatum-init
mkdir -p /var/lib/striatumd/keys && touch /var/lib/striatumd/keys/lane.pem
want 3 "the home of a user's striatum" "${system[@]}" --agent alice
rm -r /var/lib/striatumd
files >/mnt/after
diff <(grep -v '^/var/lib [0-9]' /mnt/before) <(grep -v '^/var/lib [0-9]' /mnt/after) || fail "something was written"

# A kill at any point leaves what the next run completes.
for wait in 0.01 0.03 0.06 0.1 0.15 0.2 0.3 0.4 0.5 0.6 0.8 1; do
	timeout -s KILL $wait "${system[@]}" --agent alice --operator olga >/dev/null 2>&1 || true
done
want 0 ': isolated; tried: alice' "${system[@]}" --agent alice --operator olga
cp $out /mnt/first
if pgrep -x striatumd >/dev/null; then fail "striatumd was left running"; fi
has /etc/striatumd/config.json '640 root striatumd'
has /etc/striatumd/operator.token '600 root root'
has /etc/striatum-lane '700 root root'
has /etc/striatum-lane/lane.token '600 root root'
has /var/lib/striatumd '700 striatumd striatumd'
has /var/lib/striatum-lane '700 root root'
has /etc/systemd/system/striatum-lane.service '644 root root'
[ ! -e /var/lib/striatum-lane/store.db ] || fail "the lane has a store of its own"
grep -q "\"operator_uids\": \[" /etc/striatumd/config.json && grep -q "$(id -u olga)" /etc/striatumd/config.json || fail "olga is no operator"
id -nG alice | grep -qw striatum || fail "alice may not connect"

if command -v systemd-analyze >/dev/null; then
	systemd-analyze verify /etc/systemd/system/striatumd.service /etc/systemd/system/striatum-lane.service >$out 2>&1 && [ ! -s $out ] || fail "systemd finds fault with the units"
fi

# A second run changes nothing; also where it does not name the operator again.
files >/mnt/before
want 0 ': isolated; tried: alice' "${system[@]}"
if grep -q '^striatum: made' $out; then fail "it made something again"; fi
diff /mnt/before <(files) || fail "something was written"
want 0 '"state": "there"' "${system[@]}" --output json

# What was edited is left alone and named.
for file in /etc/striatumd/config.json /etc/systemd/system/striatumd.service; do
	cp -p $file /mnt/kept
	echo '# mine' >>$file
	want 3 "$file" "${system[@]}"
	tail -1 $file | grep -q '^# mine$' || fail "$file was overwritten"
	cp -p /mnt/kept $file
done
want 3 'operator_uids' "${system[@]}" --operator bob
want 3 'no operator' "${system[@]}" --agent olga

# The daemon runs as the command says; an agent reaches the gate and no secret.
start=$(grep '^install .*striatumd serve' /mnt/first) || fail "it does not say how to start the daemon"
grep -q '^install .*striatum lane serve' /mnt/first || fail "it does not say how to start the lane"
bash -c "$start" 2>/mnt/log &
for _ in $(seq 200); do [ ! -S /run/striatumd/striatumd.sock ] || break; sleep 0.1; done
want 0 ': isolated' "${system[@]}" # with the daemon that runs
export STRIATUM_SOCKET=/run/striatumd/striatumd.sock
pgrep -x striatumd >/dev/null || fail "the daemon that ran was stopped"
for secret in /var/lib/striatum-lane/keys/lane.pem /var/lib/striatumd/store.db /var/lib/striatumd/keys/report.pem \
	/etc/striatumd/operator.token /etc/striatum-lane/lane.token /etc/striatumd/config.json; do
	[ -s $secret ] || fail "there is no $secret"
	want 1 'Permission denied' as alice cat $secret
done
tree=/mnt/tree
install -d -o alice -g alice $tree
echo 'module example.org/m' >$tree/go.mod
cd $tree
operator=(env STRIATUM_HOME=/mnt/operator STRIATUM_TOKEN_FILE=/etc/striatumd/operator.token /opt/striatum)
want 0 '' as alice STRIATUM_HOME=$tree/home /opt/striatum workflow generate --shape verification_gate --check builtin:go-test --write --dir $tree
want 0 '"digest"' "${operator[@]}" policy show --output json
want 0 'accepted policy' "${operator[@]}" policy accept --digest "$(sed -n 's/^  "digest": "\([0-9a-f]*\)".*/\1/p' $out)"
want 0 '"repository_id"' "${operator[@]}" policy show --output json
repository=$(sed -n 's/^  "repository_id": "\([^"]*\)".*/\1/p' $out)
want 0 'session token' "${operator[@]}" token mint --kind session --repository "$repository" --token-out /mnt/session.token
chown alice /mnt/session.token
alice() { as alice STRIATUM_HOME=/mnt/tree/home STRIATUM_SOCKET=$STRIATUM_SOCKET STRIATUM_TOKEN_FILE=/mnt/session.token /opt/striatum "$@"; }
want 0 'isolated' alice gate read --output json
want 3 'session' alice lane revoke lane-1 --retired
want 7 'permission denied' as bob STRIATUM_HOME=/mnt/bob STRIATUM_SOCKET=$STRIATUM_SOCKET /opt/striatum gate read

# An agent that may become root makes the lane shared, until it no longer may.
usermod --append --groups sudo bob
want 0 'group_gives_root' "${system[@]}" --agent bob
grep -q 'not isolated; tried:.*bob' $out || fail "bob was not tried"
want 0 'counts as shared' "${operator[@]}" lane list
lane=(env STRIATUM_HOME=/var/lib/striatum-lane STRIATUM_TOKEN_FILE=/etc/striatum-lane/lane.token /opt/striatum)
want 1 'group_gives_root' "${lane[@]}" lane probe
gpasswd --delete bob sudo >/dev/null
want 0 ': isolated; tried:' "${lane[@]}" lane probe
want 0 'whoever knows that nothing was copied' "${system[@]}"
want 0 'counts as shared' "${operator[@]}" lane list # the key may have been copied
want 0 ': isolated; tried:' env STRIATUM_HOME=/var/lib/striatum-lane STRIATUM_TOKEN_FILE=/etc/striatumd/operator.token /opt/striatum lane probe
want 0 'isolated' "${operator[@]}" lane list
if grep -q 'counts as shared' $out; then fail "the lane is still shared"; fi

# A lane whose key was revoked is set up anew where key and token are moved away, as it says.
id=$("${operator[@]}" lane list | cut -d' ' -f1)
want 0 'retired' "${operator[@]}" lane revoke "$id" --retired
want 3 'move /var/lib/striatum-lane/keys and /etc/striatum-lane/lane.token away' "${system[@]}"
mv /var/lib/striatum-lane/keys /etc/striatum-lane/lane.token /mnt
want 0 'made  lane token' "${system[@]}"

# A token that is good nowhere is replaced, and one that is good never.
cp -p /etc/striatum-lane/lane.token /mnt/good
echo 'striatum_la_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' >/etc/striatum-lane/lane.token
want 0 'made  lane token' "${system[@]}"
cmp -s /etc/striatum-lane/lane.token /mnt/good && fail "it is the token of before"
: >/etc/striatumd/operator.token
want 3 'is good until' "${system[@]}"

# Another name of the daemon's uid is no agent.
useradd --no-create-home --non-unique --uid "$(id -u striatumd)" twin
want 2 "the daemon's user" "${system[@]}" --agent twin

pkill -x striatumd
wait
