// What the benches share: options, keys, memory, the clock, sessions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/session.hpp"
#include "commands/bench/report.hpp"
#include "commands/interruption.hpp"
#include "commands/private_node.hpp"
#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/instance_spec.hpp"
#include "core/units.hpp"
#include "keeper/child_process.hpp"

namespace cenote::bench {

inline constexpr std::size_t key_width = 32;  ///< as vLLM's SHA-256 keys

struct options {
  std::string socket;                      ///< empty: a node of our own
  unsigned rounds = 0;                     ///< 0: each bench's own number
  std::vector<std::uint64_t> blocks = {};  ///< lookup: index sizes to measure in memory alone; empty: with a node
  std::string path = {};                   ///< nvme: where its file is made; empty: the current directory
  std::string size = "2GiB";               ///< nvme: of its file
  std::string trace = {};                  ///< policies, optimize: a file to read; empty: a made one
  std::string device = {};                 ///< gpu: as device::open takes it; empty: the first GPU, or a simulated one
  bool quick = false;                      ///< gpu, remote: little of everything, to see that it runs
  bool veth = false;                       ///< peer: between two network namespaces
  bool no_offload = false;                 ///< peer: by devices that neither cut nor join segments
  std::string url = {};                    ///< remote: of the server; empty: one of the bench's own
  std::string rival = {};                  ///< manager: a program whose times are shown, too
  std::string memory = {};                 ///< records: file of the segment
  std::uint64_t count = 0;                 ///< records: how many are read
};

// The benches; each adds its figures to the report. Each has a namespace of its own: like parts of them have like
// names, and a build compiles them together.
namespace acquire_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace checksums_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace commits_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace copies_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace copy_bench {
[[nodiscard]] result<void> run_get(const options& options, report& out);
[[nodiscard]] result<void> run_put(const options& options, report& out);
}  // namespace copy_bench
namespace gpu_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace gpu_kill_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace gpu_tier_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace indexer_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace lookup_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace manager_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace nvme_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace optimize_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace peer_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace policies_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
/// Part of `get`: readers beside a writer that commits and evicts.
namespace readers_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace records_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace remote_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
namespace wake_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}
[[nodiscard]] result<void> run_machine(const options& options, report& out);

/// Keys [first, first+count) of the series `tag`; two series never share a key.
class key_list {
 public:
  key_list(std::uint64_t tag, std::uint64_t first, std::size_t count);

  [[nodiscard]] key_batch all() const noexcept { return some(0, count_); }
  [[nodiscard]] key_batch some(std::size_t first, std::size_t count) const noexcept {
    return {bytes_.data() + first * key_width, count, key_width};
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t count_;
};

struct unmapper {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const noexcept;
};

/// Memory of the bench's own, every page touched, `count` pieces of `bytes` each.
class memory_pieces {
 public:
  memory_pieces(std::size_t count, std::uint64_t bytes);

  [[nodiscard]] std::byte* piece(std::size_t i) noexcept { return all_.get() + i * bytes_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] client::buffers some(std::size_t first, std::size_t count) noexcept {
    return {piece(first), bytes_, bytes_, count};
  }

 private:
  std::size_t count_;
  std::uint64_t bytes_;
  std::unique_ptr<std::byte, unmapper> all_;
};

/// A directory that goes away with all that is in it. Not thread-safe.
class scratch_directory {
 public:
  /// In `parent`; empty: the current directory. Errors: `system`.
  [[nodiscard]] static result<scratch_directory> make(const std::string& parent);
  scratch_directory(scratch_directory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  scratch_directory& operator=(scratch_directory&&) = delete;
  ~scratch_directory();

  [[nodiscard]] std::string operator/(std::string_view name) const;

 private:
  explicit scratch_directory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// Where a program is, by $PATH; nothing if it is not installed.
[[nodiscard]] std::optional<std::string> find_program(std::string_view name);
/// Runs a program to its end; this process has one thread. Errors: as check_interrupted(); system.
[[nodiscard]] result<process_end> run_to_end(const child_process::setup& setup);
/// The same; system, too, where it did not end with 0.
[[nodiscard]] result<void> run_program(const child_process::setup& setup);

class stopwatch {
 public:
  [[nodiscard]] double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Of a clock of processor time: user and system time, seconds.
[[nodiscard]] double cpu_seconds(clockid_t clock) noexcept;
/// User and system time of the calling thread, seconds.
[[nodiscard]] double thread_cpu_seconds() noexcept;

/// Where the bench runs: a node of its own, or the one that the user named.
class stage {
 public:
  /// `capacity`: what a node of our own gets.
  [[nodiscard]] static result<stage> open(const options& options, std::uint64_t capacity,
                                          const std::vector<std::string>& sets = {});

  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }
  /// A session of an instance with one group and blocks of `block_bytes`; the same `name` is the same instance.
  [[nodiscard]] result<client::session_ptr> attach(const std::string& name, std::uint64_t block_bytes,
                                                   std::uint32_t max_pins = 8192, const std::string& device = {}) const;

 private:
  std::unique_ptr<private_node> node_;
  std::string socket_;
};

[[nodiscard]] instance_spec spec_of(const std::string& name, std::uint64_t block_bytes);

/// Makes `keys` present without writing their blocks: the index is full, the slabs take no memory.
[[nodiscard]] result<void> commit_unwritten(client::session& session, key_batch keys);

/// Waits until this process does nothing in the background any more: a session populates new slabs in a thread.
void wait_until_settled();

/// Fails unless the whole batch was there.
[[nodiscard]] result<void> check_all(std::size_t found, std::size_t wanted);

}  // namespace cenote::bench
