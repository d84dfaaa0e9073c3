#include "tiers/gpu/copies.hpp"

#include <utility>

namespace cenote::gpu {

copies::~copies() {
  for (const auto& [first, each] : slabs_) unregister({first, each.bytes}, each.is_registered);
}

/// Whole slabs, once: a copy across two registrations is refused by some drivers.
void copies::use(std::span<std::byte> slab) {
  const auto [known, is_new] = slabs_.try_emplace(slab.data(), known_slab{slab.size(), false});
  if (is_new) known->second.is_registered = device_->register_host(slab).has_value();
}

void copies::unregister(std::span<std::byte> slab, bool is_registered) noexcept {
  if (is_registered) device_->unregister_host(slab);
}

void copies::forget(std::span<std::byte> memory) noexcept {
  for (auto each = slabs_.lower_bound(memory.data());
       each != slabs_.end() && each->first < memory.data() + memory.size();) {
    unregister({each->first, each->second.bytes}, each->second.is_registered);
    each = slabs_.erase(each);
  }
}

/// A copy that is refused may have been begun in part: its end is waited for as well.
void copies::begin(copy_way way, std::span<const copy_run> runs, std::span<const std::span<std::byte>> slabs,
                   then ended) {
  if (device_->state() == standing::away) return ended(copy_end::refused);
  stream_ref& on = way == copy_way::down ? down_ : up_;
  if (!on) {
    auto made = device_->make_stream();
    if (!made) return ended(copy_end::refused);
    on = std::move(*made);
  }
  for (const std::span<std::byte> each : slabs) use(each);
  const auto copied = device_->copy(on, runs);
  const auto point = device_->record(on);
  if (!point) return ended(copy_end::unknown);
  device_->when(*point, [is_begun = copied.has_value(), ended = std::move(ended)](const result<void>& how) {
    ended(is_begun && how.has_value() ? copy_end::done : copy_end::failed);
  });
}

}  // namespace cenote::gpu
