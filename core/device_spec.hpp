// How devices are named, in the configuration and by clients; and what of an instance lies on one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/instance_spec.hpp"

namespace cenote {

enum class device_kind : std::uint8_t { cuda, sim };

/// "GPU-<uuid>" or "cuda:GPU-<uuid>", "cuda:<number>", "sim:<number>"; behind a comma, of `sim`, faults for tests:
/// `fail=N` (its N-th piece of work, and the device with it), `lose=N` (its N-th event never ends), `hang=N` (who gives
/// it its N-th piece of work never comes back), `mib=N` (it has so much memory).
struct device_spec {
  device_kind kind = device_kind::cuda;
  std::string name;                ///< "cuda:…" or "sim:…", without faults: equal names are equal devices
  std::uint32_t fail_work = 0;     ///< 0: none
  std::uint32_t lose_event = 0;    ///< 0: none
  std::uint32_t hang_at = 0;       ///< 0: nobody
  std::uint64_t memory_bytes = 0;  ///< 0: as much as there is
};

/// Errors: invalid_argument.
[[nodiscard]] result<device_spec> parse_device(std::string_view text);

/// Of a group: which of its parts belongs to a rank. A group with one part has that for all ranks.
[[nodiscard]] std::uint32_t part_on_device(const group_spec& group, std::uint32_t rank) noexcept;

/// What of an instance lies on a device.
struct instance_share {
  instance_spec whole;
  std::uint32_t rank = 0;  ///< whose part of each block
};

/// The instance that the share is there: its groups have that part alone, and who pays is who pays for the whole.
/// Errors: invalid_argument: there is no such part, or the id becomes too long.
[[nodiscard]] result<instance_spec> instance_on_device(const instance_share& share, const std::string& device);

}  // namespace cenote
