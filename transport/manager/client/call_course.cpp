#include "transport/manager/client/call_course.hpp"

#include <utility>

#include "core/endpoint.hpp"

namespace cenote::manager {

bool call_course::move_on() {
  if (turn_ + 1 >= addresses_.size()) return false;
  address_ = addresses_[++turn_];
  return true;
}

call_outcome<> call_course::end(call_fault fault, answer_code code, const std::string& message) const {
  call_failure failure{.fault = fault, .code = code, .message = address_ + ": " + message};
  if (doubt_.empty()) return std::unexpected(std::move(failure));
  failure.message = doubt_ + "; then " + failure.message;
  if (kind_ != rpc_kind::read) failure.fault = call_fault::unknown_outcome;
  return std::unexpected(std::move(failure));
}

call_outcome<> call_course::expire() const {
  const auto fault = doubt_.empty() ? call_fault::unreachable : call_fault::unanswered;
  return end(fault, answer_code::unspecified, "the call's time is over");
}

std::optional<call_outcome<>> call_course::follow(const call_attempt& attempt) {
  const auto stop = [&](const std::string& reason) {
    return end(call_fault::refused, attempt.code, attempt.message + reason);
  };
  if (attempt.leader.empty()) {
    if (move_on()) return std::nullopt;
    return stop(" (it names no leader)");
  }
  const auto leader = parse_endpoint(attempt.leader);
  if (!leader || leader->port == 0) return stop(" (the leader's address is none)");
  if (++hops_ > most_hops_) return stop(" (after " + std::to_string(most_hops_) + " others that sent it on)");
  address_ = leader->text();
  return std::nullopt;
}

std::optional<call_outcome<>> call_course::repeat(const call_attempt& attempt) {
  const bool may_repeat = kind_ != rpc_kind::single_write && doubt_.empty();
  if (may_repeat) {
    doubt_ = address_ + ": " + attempt.message;
    (void)move_on();  // the last one is asked again
    return std::nullopt;
  }
  const auto fault = kind_ == rpc_kind::read ? call_fault::unanswered : call_fault::unknown_outcome;
  return end(fault, attempt.code, attempt.message);
}

std::optional<call_outcome<>> call_course::take(const call_attempt& attempt) {
  switch (attempt.state) {
    case attempt_state::answered:
      if (attempt.code == answer_code::ok) return call_outcome<>();
      if (attempt.code == answer_code::server_not_leader) return follow(attempt);
      return end(call_fault::refused, attempt.code, attempt.message);
    case attempt_state::unsent:
      if (move_on()) return std::nullopt;
      return end(call_fault::unreachable, attempt.code, attempt.message);
    case attempt_state::unanswered: break;
  }
  return repeat(attempt);
}

}  // namespace cenote::manager
