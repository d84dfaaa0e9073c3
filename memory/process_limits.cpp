#include "memory/process_limits.hpp"

#include <algorithm>

#include "core/units.hpp"
#include "memory/block_record.hpp"
#include "memory/index.hpp"
#include "memory/version_table.hpp"

namespace cenote::memory {

namespace {

/// Beside records and blocks: windows over indexes and versions, threads, the heap.
constexpr std::uint64_t room_for_the_rest = std::uint64_t{4} << 30;

}  // namespace

std::vector<process_limit> process_limits(std::uint64_t capacity) {
  const std::uint64_t longest =
      std::max({index_segment_bytes, version_table::segment_bytes, record_table::segment_bytes, capacity});
  return {{RLIMIT_FSIZE, "file size", "ulimit -f unlimited, systemd: LimitFSIZE=infinity", longest},
          {RLIMIT_AS, "address space", "ulimit -v unlimited, systemd: LimitAS=infinity",
           record_table::segment_bytes + capacity + room_for_the_rest}};
}

result<void> check_process_limit(const process_limit& limit, rlim_t hard) {
  if (hard == RLIM_INFINITY || hard >= limit.least) return {};
  return fail(error_code::unsupported, "the limit of " + std::string(limit.name) + " is " + approximate_bytes(hard) +
                                           ", and a node of this dram.capacity needs " +
                                           approximate_bytes(limit.least) + ", most of it sparse; raise it (" +
                                           std::string(limit.remedy) + ")");
}

result<void> check_process_limits(std::uint64_t capacity) {
  for (const process_limit& each : process_limits(capacity)) {
    rlimit limit{};
    if (::getrlimit(static_cast<__rlimit_resource>(each.resource), &limit) != 0) return fail_errno("getrlimit");
    if (auto fits = check_process_limit(each, limit.rlim_max); !fits) return fits;
  }
  return {};
}

void raise_process_limits(std::uint64_t capacity) noexcept {
  for (const process_limit& each : process_limits(capacity)) {
    const auto resource = static_cast<__rlimit_resource>(each.resource);
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= each.least) continue;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(resource, &limit);
  }
}

}  // namespace cenote::memory
