// Where a call is sent next, and when it ends. A plain object without clock or network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/manager/client/call_failure.hpp"
#include "transport/manager/rpc_table.hpp"

namespace cenote::manager {

enum class attempt_state : std::uint8_t {
  answered,    ///< with a code
  unsent,      ///< no connection: the manager knows nothing of it
  unanswered,  ///< sent, and no answer came, or none that could be read
};

/// The result of one attempt.
struct call_attempt {
  attempt_state state = attempt_state::unsent;
  answer_code code = answer_code::unspecified;
  std::string message = {};
  std::string leader = {};  ///< HOST:PORT; empty: the answer has none
};

/// Addresses are asked in their order until one takes the call. A manager that does not lead sends it on, so many times
/// at most. After a lost answer a read and a repeatable write are sent once more, a single write never. Once a write
/// may have arrived, only an OK makes its outcome certain: a refusal of the second attempt does not.
class call_course {
 public:
  /// `addresses`: one at least, the likely leader first.
  call_course(rpc_kind kind, std::vector<std::string> addresses, unsigned most_hops)
      : kind_(kind), addresses_(std::move(addresses)), most_hops_(most_hops), address_(addresses_.front()) {}

  /// The one to be asked now.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// The attempt at address(). Nothing: the next one is due; else the call's end.
  [[nodiscard]] std::optional<call_outcome<>> take(const call_attempt& attempt);
  /// The end of a call whose time is over before address() was asked.
  [[nodiscard]] call_outcome<> expire() const;

 private:
  [[nodiscard]] std::optional<call_outcome<>> follow(const call_attempt& attempt);
  [[nodiscard]] std::optional<call_outcome<>> repeat(const call_attempt& attempt);
  [[nodiscard]] call_outcome<> end(call_fault fault, answer_code code, const std::string& message) const;
  /// False: all addresses have had their turn.
  [[nodiscard]] bool move_on();

  rpc_kind kind_;
  std::vector<std::string> addresses_;
  unsigned most_hops_;
  std::string address_;
  std::size_t turn_ = 0;
  unsigned hops_ = 0;
  std::string doubt_ = {};  ///< why an attempt has no answer
};

}  // namespace cenote::manager
