#include "actors/request_recording.hpp"

#include <utility>

#include "core/random_number.hpp"

namespace cenote {

namespace {

/// Of a request beside its blocks, in blocks.
constexpr std::uint64_t request_weight = 8;

std::uint64_t weight_of(const blocks::watched_request& request) {
  return request.ids.size() + request_weight;
}

recorded_batch refusal(error_code code, std::string reason) {
  recorded_batch answer;
  answer.status = {code, std::move(reason), 0};
  return answer;
}

}  // namespace

bool request_recording::is_under_way(std::chrono::steady_clock::time_point now) noexcept {
  if (number_ != 0 && now - last_question_ > patience) end(number_);
  return number_ != 0;
}

recorded_batch request_recording::begin(std::uint64_t dropped, std::chrono::steady_clock::time_point now) {
  if (is_under_way(now)) return refusal(error_code::limit_exceeded, "this node's requests are being recorded already");
  number_ = random_number();
  start_ = now;
  last_question_ = now;
  dropped_ = 0;
  dropped_before_ = dropped;
  recorded_batch answer;
  answer.recording = number_;
  return answer;
}

void request_recording::add(const watched_batch& batch, std::chrono::steady_clock::time_point now) {
  if (!is_under_way(now)) return;
  const auto time_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(now - start_).count());
  for (const blocks::watched_request& each : batch.requests) {
    if (waiting_weight_ + weight_of(each) > most_waiting) {
      ++dropped_;
      continue;
    }
    waiting_weight_ += weight_of(each);
    waiting_.push_back({each, time_ns});
  }
}

recorded_batch request_recording::take(std::uint64_t number, std::uint64_t dropped,
                                       std::chrono::steady_clock::time_point now) {
  if (!is_under_way(now) || number != number_) {
    return refusal(error_code::closed, "the recording has ended: its requests were not fetched for 5 s");
  }
  last_question_ = now;
  recorded_batch answer;
  answer.recording = number_;
  answer.dropped = dropped_ + (dropped - dropped_before_);
  for (std::uint64_t weight = 0; !waiting_.empty() && weight < most_answered;) {
    waiting_request next = std::move(waiting_.front());
    waiting_.pop_front();
    weight += weight_of(next.request);
    answer.times_ns.push_back(next.time_ns);
    answer.requests.push_back(std::move(next.request));
  }
  for (const blocks::watched_request& each : answer.requests) waiting_weight_ -= weight_of(each);
  answer.has_more = !waiting_.empty();
  return answer;
}

void request_recording::end(std::uint64_t number) noexcept {
  if (number != number_) return;
  number_ = 0;
  waiting_ = {};
  waiting_weight_ = 0;
}

}  // namespace cenote
