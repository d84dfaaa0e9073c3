// Keeps lines, contents and faults under one lock.
#include "recording_sink.hpp"

namespace cenote::indexer {

recording_sink::record* recording_sink::open_record(publisher_id publisher) {
  const auto found = records_.find(publisher);
  if (found != records_.end() && found->second.is_open) return &found->second;
  ++faults_;
  return nullptr;
}

void recording_sink::open(publisher_id publisher, const publisher_identity& identity) {
  const std::lock_guard lock(mutex_);
  record& made = records_[publisher];
  faults_ += made.is_open || !made.lines.empty() ? 1 : 0;
  made.identity = identity;
  made.is_open = true;
  made.lines.emplace_back("open");
}

batch_effect recording_sink::apply(publisher_id publisher, std::string_view topic, const feed_apply& batch) {
  std::unique_lock lock(mutex_);
  is_held_ = holds_;
  released_.wait(lock, [this] { return !holds_; });
  is_held_ = false;
  record* const found = open_record(publisher);
  if (found == nullptr) return {};
  const std::string payload(reinterpret_cast<const char*>(batch.payload.bytes.data()), batch.payload.bytes.size());
  found->lines.push_back("apply " + payload);
  found->content.push_back(payload);
  order_.push_back(found->identity.pod);
  if (topic.size() > 512) ++faults_;
  const auto found_effect = effects_.find(payload);
  const batch_effect effect = found_effect == effects_.end() ? batch_effect{} : found_effect->second;
  const auto hook = hook_;
  const std::string pod = found->identity.pod;
  lock.unlock();
  if (hook) hook(pod);
  return effect;
}

void recording_sink::clear(publisher_id publisher, clear_reason reason) {
  const std::lock_guard lock(mutex_);
  record* const found = open_record(publisher);
  if (found == nullptr) return;
  found->lines.push_back("clear " + std::string(name_of(reason)));
  found->content.clear();
}

void recording_sink::mark(publisher_id publisher, const feed_mark& mark) {
  const std::lock_guard lock(mutex_);
  record* const found = open_record(publisher);
  if (found != nullptr) found->mark = name_of(mark.state);
}

void recording_sink::close(publisher_id publisher) {
  const std::lock_guard lock(mutex_);
  record* const found = open_record(publisher);
  if (found == nullptr) return;
  found->lines.emplace_back("close");
  found->content.clear();
  found->is_open = false;
}

std::vector<publisher_id> recording_sink::advance(feed_time /*now*/) {
  const std::lock_guard lock(mutex_);
  ++ticks_;
  return {};
}

std::vector<std::string> recording_sink::lines_of(std::string_view pod) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [publisher, each] : records_) {
    if (each.identity.pod == pod) all.insert(all.end(), each.lines.begin(), each.lines.end());
  }
  return all;
}

std::vector<std::string> recording_sink::content_of(std::string_view pod) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [publisher, each] : records_) {
    if (each.identity.pod == pod) all.insert(all.end(), each.content.begin(), each.content.end());
  }
  return all;
}

std::string recording_sink::mark_of(std::string_view pod) const {
  const std::lock_guard lock(mutex_);
  std::string mark;
  for (const auto& [publisher, each] : records_) {
    if (each.identity.pod == pod && each.is_open) mark = each.mark;
  }
  return mark;
}

publisher_identity recording_sink::identity_of(std::string_view pod) const {
  const std::lock_guard lock(mutex_);
  publisher_identity identity;
  for (const auto& [publisher, each] : records_) {
    if (each.identity.pod == pod) identity = each.identity;
  }
  return identity;
}

std::vector<std::string> recording_sink::order() const {
  const std::lock_guard lock(mutex_);
  return order_;
}

std::size_t recording_sink::pods() const {
  const std::lock_guard lock(mutex_);
  return records_.size();
}

std::size_t recording_sink::ticks() const {
  const std::lock_guard lock(mutex_);
  return ticks_;
}

std::size_t recording_sink::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

void recording_sink::hold() {
  const std::lock_guard lock(mutex_);
  holds_ = true;
}

void recording_sink::release() {
  {
    const std::lock_guard lock(mutex_);
    holds_ = false;
  }
  released_.notify_all();
}

bool recording_sink::is_held() const {
  const std::lock_guard lock(mutex_);
  return is_held_;
}

void recording_sink::set_hook(std::function<void(std::string_view pod)> hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

void recording_sink::set_effect(std::string payload, batch_effect effect) {
  const std::lock_guard lock(mutex_);
  effects_[std::move(payload)] = effect;
}

}  // namespace cenote::indexer
