#include "commands/operator/doctor.hpp"

#include <fmt/format.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "commands/common.hpp"
#include "config/cluster_rules.hpp"
#include "config/machine_file.hpp"
#include "core/copy_measurement.hpp"
#include "core/copy_routines.hpp"
#include "core/machine.hpp"
#include "core/socket_address.hpp"
#include "core/unique_fd.hpp"
#include "core/units.hpp"
#include "memory/process_limits.hpp"
#include "memory/segment.hpp"
#include "transport/http/server.hpp"
#include "transport/ucx/environment.hpp"

namespace cenote {

namespace {

namespace fs = std::filesystem;
using level = finding::level;

constexpr std::uint64_t files_per_session = 8;
constexpr std::uint64_t wanted_files = 16'384;
constexpr std::pair first_with_peer_pidfds{6, 5};

std::string limit_text(rlim_t value, bool as_bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return as_bytes ? approximate_bytes(value) : std::to_string(value);
}

// "6.1.0-13-amd64" -> {6, 1}
std::pair<int, int> version_of(const char* release) {
  int major = 0;
  int minor = 0;
  const char* const end = release + std::strlen(release);
  const auto [dot, why] = std::from_chars(release, end, major);
  if (why == std::errc() && dot != end) std::from_chars(dot + 1, end, minor);
  return {major, minor};
}

finding check_kernel() {
  utsname name{};
  ::uname(&name);
  if (const auto pages = memory::check_kernel_pages(); !pages)
    return {level::fail, "kernel", name.release, pages.error().message()};
  const auto version = version_of(name.release);
  if (version < std::pair(5, 4)) {
    return {level::fail, "kernel", name.release, "Linux 5.4 or newer is needed (pidfds); 6.5 or newer is best"};
  }
  if (version < first_with_peer_pidfds) {
    return {level::warn, "kernel", name.release,
            "before 6.5 a client's process is found by its pid, which leaves a short race when pids are reused"};
  }
  return {level::ok, "kernel", name.release};
}

finding check_memory(std::uint64_t capacity, const fs::path& root) {
  const auto limits = read_memory_limits(root);
  if (!limits) return {level::warn, "memory", "unknown", limits.error().message()};
  const auto found = fmt::format("{} in all, {} available, dram.capacity {}", approximate_bytes(limits->total),
                                 approximate_bytes(limits->available), approximate_bytes(capacity));
  if (capacity > limits->total) return {level::fail, "memory", found, "choose a smaller dram.capacity"};
  if (capacity > limits->available) {
    return {level::warn, "memory", found,
            "other programs use what the DRAM tier would fill; choose a smaller "
            "dram.capacity unless a node of this capacity runs already"};
  }
  return {level::ok, "memory", found};
}

finding check_cgroup(std::uint64_t capacity, const fs::path& root) {
  const auto limits = read_memory_limits(root);
  if (!limits || !limits->cgroup) return {level::ok, "cgroup", "no memory limit"};
  const auto found = fmt::format("memory limit {} ({})", approximate_bytes(*limits->cgroup), limits->cgroup_file);
  if (capacity > *limits->cgroup) {
    return {level::fail, "cgroup", found,
            "the kernel would kill the node: choose a smaller dram.capacity, or raise "
            "the limit (systemd: MemoryMax, Kubernetes: resources.limits.memory)"};
  }
  if (capacity > *limits->cgroup / 10 * 9) {
    return {level::warn, "cgroup", found, "leave a tenth of the limit for everything beside the DRAM tier"};
  }
  return {level::ok, "cgroup", found};
}

finding check_memlock(std::uint64_t capacity) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const auto found = limit_text(limit.rlim_max, true);
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= capacity || ::geteuid() == 0) {
    return {level::ok, "memlock", found};
  }
  return {level::warn, "memlock", found,
          "disk and network engines register the slabs: ulimit -l unlimited (systemd: LimitMEMLOCK=infinity, "
          "docker: --ulimit memlock=-1); without it they use plain buffers"};
}

finding check_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto found = limit_text(limit.rlim_max, false);
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= wanted_files) return {level::ok, "open files", found};
  return {level::warn, "open files", found,
          fmt::format("enough for about {} sessions; raise the hard limit to {} (systemd: LimitNOFILE)",
                      limit.rlim_max / files_per_session, wanted_files)};
}

finding check_limit(const memory::process_limit& limit) {
  rlimit now{};
  ::getrlimit(static_cast<__rlimit_resource>(limit.resource), &now);
  const auto found = limit_text(now.rlim_max, true);
  const std::string name(limit.name);
  if (memory::check_process_limit(limit, now.rlim_max)) return {level::ok, name, found};
  return {level::fail, name, found,
          fmt::format("a node of this dram.capacity needs {}, most of it sparse: {}", approximate_bytes(limit.least),
                      limit.remedy)};
}

finding check_io_uring(const fs::path& root) {
  io_uring_params parameters{};
  const unique_fd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 4U, &parameters)));
  if (ring) return {level::ok, "io_uring", "available"};
  const int why = errno;
  const auto disabled = first_line(root / "proc/sys/kernel/io_uring_disabled");
  std::string remedy = "the NVMe tier uses threads instead, which cost more CPU";
  if (disabled && *disabled != "0") remedy += ": sysctl kernel.io_uring_disabled=0";
  if (why == EPERM) remedy += "; containers often forbid it: allow io_uring in the seccomp profile";
  return {level::warn, "io_uring", std::strerror(why), remedy};
}

// "always within_size [advise] never deny force" -> "advise"
std::string chosen(const std::optional<std::string>& line) {
  if (!line) return "not offered";
  const auto from = line->find('[');
  const auto to = line->find(']');
  return from == std::string::npos || to == std::string::npos ? *line : line->substr(from + 1, to - from - 1);
}

finding check_huge_pages(bool wanted, const fs::path& root) {
  const auto shmem = chosen(first_line(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  const auto reserved = first_line(root / "proc/sys/vm/nr_hugepages").value_or("0");
  const auto found = fmt::format("shared memory: {}; reserved: {}", shmem, reserved);
  const bool offered = shmem == "always" || shmem == "within_size" || shmem == "advise" || shmem == "force";
  if (!wanted) return {level::ok, "huge pages", found, "dram.huge_pages = off: the node does not ask for them"};
  if (offered || reserved != "0") return {level::ok, "huge pages", found};
  return {level::warn, "huge pages", found,
          "memory is populated, mapped and read faster with them: "
          "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"};
}

/// "read: AVX-512, 4 pages, 1.8 of memcpy", or "checksum: AVX2".
std::string copy_text(copy_case kind, const copy_decision& decision) {
  std::string name = fmt::format("{}: {}", name_of(kind), name_of_candidate(kind, decision.number));
  const double by_memcpy = decision.rate_of(memcpy_number);
  if (kind == copy_case::checksum || decision.number == memcpy_number || by_memcpy <= 0) return name;
  return name + fmt::format(", {:.2f} of memcpy", decision.rate_of(decision.number) / by_memcpy);
}

/// Shows the decisions that a node of this machine saved, or measures as a node does that starts here first.
finding check_copies(const doctor_subject& node) {
  const auto loaded = load_decisions(decisions_file(node.runtime_dir), machine_identity());
  machine_decisions decisions = loaded.value_or(machine_decisions());
  if (!loaded) {
    if (const auto round = measure_round(decisions); !round)
      return {level::warn, "copies", "not measured", round.error().message()};
  }
  std::string text;
  for (std::size_t i = 0; i < copy_case_count; ++i) {
    const auto kind = static_cast<copy_case>(i);
    const copy_decision decision = decisions.decision_of(kind);
    if (decision.number != 0) text += (text.empty() ? "" : "; ") + copy_text(kind, decision);
  }
  return {level::ok, "copies", text};
}

finding check_populate(bool populate) {
  utsname name{};
  ::uname(&name);
  if (!populate) {
    return {level::warn, "populate", "off",
            "the first use of a page costs a put or a load microseconds: dram.populate = true touches memory ahead"};
  }
  if (version_of(name.release) >= std::pair(5, 14)) return {level::ok, "populate", "on"};
  return {level::warn, "populate", "on", "Linux 5.14 or newer is needed to touch memory ahead"};
}

finding check_numa(const fs::path& root) {
  const auto nodes = first_line(root / "sys/devices/system/node/online").value_or("0");
  if (nodes.find_first_of(",-") == std::string::npos) return {level::ok, "NUMA", "one node"};
  return {level::ok, "NUMA", fmt::format("nodes {}", nodes),
          "with engines on one socket, bind the slabs there: dram.numa_node"};
}

finding check_user_namespace(const fs::path& root) {
  const auto map = first_line(root / "proc/self/uid_map").value_or("");
  // The initial user namespace maps all ids to themselves.
  if (map.find("4294967295") != std::string::npos) return {level::ok, "user namespace", "the host's"};
  return {level::warn, "user namespace", "of its own",
          "users outside are seen as nobody: list them in auth.allow_uids as this namespace sees them"};
}

// Before Linux 6.5 processes of another PID namespace cannot be watched, so they cannot attach.
finding check_pid_namespace(const fs::path& root) {
  // The kernel's threads are children of pid 2, which only the host's namespace has.
  const auto second = first_line(root / "proc/2/comm").value_or("");
  if (second == "kthreadd") return {level::ok, "PID namespace", "the host's"};
  utsname name{};
  ::uname(&name);
  if (version_of(name.release) >= first_with_peer_pidfds)
    return {level::ok, "PID namespace", "of its own: processes outside have no pids here"};
  return {level::warn, "PID namespace", "of its own",
          "before Linux 6.5 engines must share it to attach (docker: --pid=host or --pid=container:NODE, Kubernetes: "
          "shareProcessNamespace or hostPID)"};
}

std::string_view word_of(level severity) {
  switch (severity) {
    case level::ok: return "ok";
    case level::warn: return "warn";
    case level::fail: return "FAIL";
  }
  return "";
}

exit_code run_doctor(const config_options& options) {
  const auto loaded = options.load();
  if (!loaded) return failed_with(loaded.error());
  const auto findings = examine({.capacity = loaded->dram.capacity,
                                 .populate = loaded->dram.populate,
                                 .huge_pages = loaded->dram.huge_pages == config::huge_pages::automatic,
                                 .runtime_dir = config::runtime_dir(*loaded),
                                 .cluster = loaded->cluster,
                                 .metrics = loaded->metrics.listen});
  fmt::print("{}", findings_text(findings));
  const bool failed = std::ranges::any_of(findings, [](const finding& each) { return each.how == level::fail; });
  return failed ? exit_code::failed : exit_code::orderly;
}

std::vector<finding> examine_machine(const doctor_subject& node, const fs::path& root) {
  const auto limits = memory::process_limits(node.capacity);
  return {check_kernel(),
          check_memory(node.capacity, root),
          check_cgroup(node.capacity, root),
          check_memlock(node.capacity),
          check_open_files(),
          check_limit(limits.at(0)),
          check_limit(limits.at(1)),
          check_io_uring(root),
          check_copies(node),
          check_populate(node.populate),
          check_huge_pages(node.huge_pages, root),
          check_numa(root),
          check_pid_namespace(root),
          check_user_namespace(root)};
}

/// Of IPv4, by its first numbers: what is routed inside a site only, or nowhere.
bool is_private(const std::string& host) {
  unsigned first = 0;
  unsigned second = 0;
  if (std::sscanf(host.c_str(), "%u.%u.", &first, &second) != 2) {
    return host == "localhost";
  }
  return first == 10 || first == 127 || (first == 172 && second >= 16 && second < 32) ||
         (first == 192 && second == 168) || (first == 100 && second >= 64 && second < 128) ||
         (first == 169 && second == 254);
}

finding check_cluster_address(const config::cluster_section& cluster) {
  const std::string where = cluster.listen ? cluster.listen->text() : "nowhere";
  if (const auto device = ucx::device_of(cluster.listen ? cluster.listen->host : ""); !device)
    return {level::fail, "cluster address", where, device.error().message()};
  if (!is_private(cluster.listen->host)) {
    return {level::warn, "cluster address", where,
            "a public address: whoever can change what passes between nodes can write into this node's memory; "
            "docs/cluster.md has a firewall's rule and a tunnel"};
  }
  return {level::ok, "cluster address", where};
}

/// `where`: by its numbers.
bool can_listen(const endpoint& where) {
  const auto address = numeric_address(where);
  if (!address) return false;
  const unique_fd made(::socket(address->bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return made && ::bind(made.get(), address->get(), address->size) == 0 && ::listen(made.get(), 1) == 0;
}

/// Does the kernel give this port to sockets that ask for any?
bool is_given_away(std::uint16_t port) {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  return range >> first >> last && first <= port && port <= last;
}

finding check_cluster_ports(const config::cluster_section& cluster) {
  const auto range = config::parse_ports(cluster.ports);
  if (!range || !cluster.listen) return {level::fail, "cluster ports", cluster.ports, "see cluster.ports"};
  const auto address = node_address(*cluster.listen);
  const endpoint where = address ? address->where() : endpoint();
  const auto& [first, last] = *range;
  unsigned wanted = 0;
  unsigned free = 0;
  for (std::uint32_t port = first; first != 0 && port <= last; ++port, ++wanted)
    free += can_listen({where.host, static_cast<std::uint16_t>(port)}) ? 1 : 0;
  const std::string found = wanted == 0 ? "any" : fmt::format("{}, {} of {} free", cluster.ports, free, wanted);
  const std::string by_whom = "; by this node, if it runs now: else another program has them";
  if (!can_listen(where)) {
    return {level::warn, "cluster ports", fmt::format("{} is in use", cluster.listen->port),
            "cluster.listen is taken" + by_whom};
  }
  if (wanted != 0 && free < config::least_ports) {
    return {level::warn, "cluster ports", found,
            fmt::format("a worker and its successor need {}: see cluster.ports{}", config::least_ports, by_whom)};
  }
  if (is_given_away(where.port)) {
    return {
        level::warn, "cluster ports", fmt::format("{}, {}", where.port, found),
        "the kernel gives such ports to whoever asks for any, perhaps cluster.listen's while the node is down: take "
        "one outside of net.ipv4.ip_local_port_range, or put it into net.ipv4.ip_local_reserved_ports"};
  }
  return {level::ok, "cluster ports", found};
}

finding check_metrics_port(const endpoint& address) {
  if (const auto taken = http::server::bind(address); !taken) {
    return {level::warn, "metrics port", taken.error().message(),
            "without it a probe of /healthz fails, and the node tries it again; metrics.listen may be taken by this "
            "node, if it runs now"};
  }
  return {level::ok, "metrics port", address.text()};
}

finding check_cluster_secret(const config::cluster_section& cluster) {
  const auto path = config::secret_path(cluster);
  if (!path) return {level::fail, "cluster secret", "nowhere", path.error().message()};
  if (cluster.secret_file.empty() && ::access(path->c_str(), F_OK) != 0)
    return {level::ok, "cluster secret", "made at the start, in " + *path};
  if (const auto secret = config::read_secret(*path); !secret)
    return {level::fail, "cluster secret", *path, secret.error().message()};
  return {level::ok, "cluster secret", *path};
}

finding check_ucx() {
  if (const auto loaded = ucx::load_library({}); !loaded)
    return {level::fail, "UCX", "missing", loaded.error().message()};
  return {level::ok, "UCX", "is there"};
}

finding check_congestion(const fs::path& root) {
  return {level::ok, "congestion control",
          first_line(root / "proc/sys/net/ipv4/tcp_congestion_control").value_or("not known")};
}

}  // namespace

std::vector<finding> examine(const doctor_subject& node, const fs::path& root) {
  auto all = examine_machine(node, root);
  if (node.metrics && node.metrics->port != 0) all.push_back(check_metrics_port(*node.metrics));
  if (node.cluster.name.empty()) return all;
  all.push_back(check_cluster_address(node.cluster));
  all.push_back(check_cluster_ports(node.cluster));
  all.push_back(check_cluster_secret(node.cluster));
  all.push_back(check_ucx());
  all.push_back(check_congestion(root));
  return all;
}

std::string findings_text(const std::vector<finding>& findings) {
  std::string out;
  for (const auto& each : findings) {
    out += fmt::format("{:<5} {:<15} {}\n", word_of(each.how), each.subject, each.found);
    if (!each.remedy.empty()) out += fmt::format("      {:<15} -> {}\n", "", each.remedy);
  }
  return out;
}

void add_doctor(CLI::App& app) {
  auto* command = app.add_subcommand("doctor", "Can this machine run a node well? What to change if not");
  auto options = std::make_shared<config_options>();
  options->file = config::machine_file();
  options->add_to(*command);
  command->callback([options] { end_with(run_doctor(*options)); });
}

}  // namespace cenote
