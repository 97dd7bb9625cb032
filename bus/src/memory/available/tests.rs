use super::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.write(
            "proc/meminfo",
            "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n",
        );
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A group of the second version.
    fn group(&self, path: &str, limit: &str, used: u64, cache: u64) {
        let path = format!("sys/fs/cgroup/{path}");
        self.write(&format!("{path}/memory.max"), &format!("{limit}\n"));
        self.write(&format!("{path}/memory.current"), &format!("{used}\n"));
        let stat = format!("anon 5\nactive_file 7\ninactive_file {cache}\n");
        self.write(&format!("{path}/memory.stat"), &stat);
    }

    fn available(&self) -> Option<usize> {
        available_bytes(self.0.path())
    }
}

const MACHINE: Option<usize> = Some(8000 * 1024);

#[test]
fn without_a_limit_it_is_the_machines() {
    let tree = Tree::new();
    assert_eq!(tree.available(), MACHINE);
    tree.write("proc/self/cgroup", "0::/\n");
    assert_eq!(tree.available(), MACHINE, "the root group has no limit");
    tree.write("proc/self/cgroup", "0::/a.slice/b\n");
    tree.group("a.slice/b", "max", 1000, 0);
    assert_eq!(tree.available(), MACHINE);
    tree.write("proc/self/cgroup", "garbage\n7:\n\n0::/../../x\n");
    assert_eq!(tree.available(), MACHINE);
    assert_eq!(available_bytes(&tree.0.path().join("none")), None);
}

#[test]
fn the_least_limit_of_a_group_and_its_parents_counts() {
    let tree = Tree::new();
    tree.write("proc/self/cgroup", "0::/a.slice/b\n");
    tree.group("a.slice/b", "100000", 30000, 1000);
    assert_eq!(tree.available(), Some(71000), "cache can be dropped");
    tree.group("a.slice", "90000", 60000, 0);
    assert_eq!(tree.available(), Some(30000), "the parent's");
    tree.group("a.slice", "90000", 95000, 0);
    assert_eq!(tree.available(), Some(0), "beyond it");
    // In a namespace of its own the process sees its group as the root.
    tree.write("proc/self/cgroup", "0::/\n");
    tree.group(".", "5000", 1000, 0);
    assert_eq!(tree.available(), Some(4000));
    tree.write("proc/self/cgroup", "0::/docker/of-the-host\n");
    assert_eq!(tree.available(), Some(4000), "its path is not here");
}

#[test]
fn groups_of_the_first_version_count_too() {
    let tree = Tree::new();
    tree.write(
        "proc/self/cgroup",
        "4:cpu,cpuacct:/x\n3:memory:/job\n0::/\n",
    );
    let group = "sys/fs/cgroup/memory/job";
    tree.write(&format!("{group}/memory.limit_in_bytes"), "50000\n");
    tree.write(&format!("{group}/memory.usage_in_bytes"), "20000\n");
    let stat = "inactive_file 1\ntotal_inactive_file 500\n";
    tree.write(&format!("{group}/memory.stat"), stat);
    assert_eq!(tree.available(), Some(30500));
    let unlimited = "9223372036854771712\n";
    tree.write(&format!("{group}/memory.limit_in_bytes"), unlimited);
    assert_eq!(tree.available(), MACHINE);
}
