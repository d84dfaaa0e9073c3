// The kind of machine that a bench runs on: what its figures depend on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "commands/bench/support.hpp"

namespace cenote::bench {

struct cache_size {
  std::string level;  ///< "L1d", "L2"
  std::uint64_t bytes = 0;
};

struct machine {
  std::string kind;        ///< processor generation and cores, as a file's name: "zen-4-2"
  std::string processor;   ///< its own name
  std::string generation;  ///< "Zen 4"; family and model of an unknown one
  std::string vendor;
  unsigned family = 0;
  unsigned model = 0;
  unsigned stepping = 0;
  unsigned cores = 0;              ///< that this process may use
  unsigned vector_bits = 0;        ///< of the widest registers
  std::vector<cache_size> caches;  ///< of the first core, a shared one whole
  std::string kernel;
  std::uint64_t page_bytes = 0;
  std::string huge_pages;         ///< of private memory, by the kernel's setting: "madvise"
  std::string shared_huge_pages;  ///< of shared memory
  double memcpy_rate = 0;         ///< GiB/s over memory that is not in the caches; 0 until it is measured
};

/// The machine that /proc and /sys below `root` describe; a member whose file is missing stays empty. Thread-safe.
[[nodiscard]] machine read_machine(const std::filesystem::path& root = "/");

/// One JSON object with one member, "machine".
[[nodiscard]] std::string json_line(const machine& host);

}  // namespace cenote::bench
