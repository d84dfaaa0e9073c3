#include "services/manager/service/call_counts.hpp"

#include <algorithm>

namespace cenote::manager {

void call_counts::note(rpc call, answer_code code, std::chrono::nanoseconds time) {
  guarded_record& target = records_[static_cast<std::size_t>(call)];
  const std::lock_guard lock(target.mutex);
  ++target.record.answers[code];
  target.record.times.add(static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0)));
}

call_counts::call_record call_counts::record_of(rpc call) const {
  const guarded_record& source = records_[static_cast<std::size_t>(call)];
  const std::lock_guard lock(source.mutex);
  return source.record;
}

}  // namespace cenote::manager
