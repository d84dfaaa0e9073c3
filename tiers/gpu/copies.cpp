#include "tiers/gpu/copies.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace cenote::gpu {

copies::~copies() {
  if (!are_idle()) return;
  for (const auto& [first, each] : slabs_) {
    if (each.is_registered) device_->unregister_host({first, each.bytes});
  }
}

bool copies::are_idle() {
  return std::ranges::all_of(std::array{down_, up_}, [&](const stream_ref& each) {
    if (!each) return true;
    const auto last = device_->record(each);
    return last && await(*device_, *last, patience);
  });
}

/// A copy that is refused may have been begun in part: its end is waited for as well.
void copies::begin(copy_way way, std::span<const copy_run> runs, std::span<const std::span<std::byte>> slabs,
                   then ended) {
  using enum copy_end::kind;
  if (device_->state() == standing::away) return ended({refused, "the device is away"});
  stream_ref& on = way == copy_way::down ? down_ : up_;
  if (!on) {
    auto made = device_->make_stream();
    if (!made) return ended({refused, made.error().describe()});
    on = std::move(*made);
  }
  for (const std::span<std::byte> each : slabs) {
    if (slabs_.try_emplace(each.data(), known_slab{each.size()}).second) unregistered_.push_back(each.data());
  }
  const auto copied = device_->copy(on, runs);
  const auto point = device_->record(on);
  if (!point) return ended({unknown, point.error().describe()});
  device_->when(*point, [copied, ended = std::move(ended)](const result<void>& how) {
    const result<void>& all = copied ? how : copied;
    ended(all ? copy_end{} : copy_end{failed, all.error().describe()});
  });
}

/// Whole slabs: a copy across two registrations is refused by some drivers.
bool copies::register_one() {
  if (unregistered_.empty()) return false;
  const auto slab = slabs_.find(unregistered_.front());
  unregistered_.pop_front();
  const auto registered = device_->register_host({slab->first, slab->second.bytes});
  slab->second.is_registered = registered.has_value();
  if (!registered && staged_) std::exchange(staged_, nullptr)(registered.error());
  return true;
}

void copies::forget(std::span<std::byte> memory) noexcept {
  const auto is_within = [&](const std::byte* at) { return at >= memory.data() && at < memory.data() + memory.size(); };
  std::erase_if(unregistered_, is_within);
  std::erase_if(slabs_, [&](const auto& each) {
    const auto& [first, slab] = each;
    if (!is_within(first)) return false;
    if (slab.is_registered) device_->unregister_host({first, slab.bytes});
    return true;
  });
}

}  // namespace cenote::gpu
