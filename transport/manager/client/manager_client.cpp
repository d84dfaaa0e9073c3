#include "transport/manager/client/manager_client.hpp"

#include <algorithm>

namespace cenote::manager {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::vector<std::string> texts_of(const std::vector<endpoint>& addresses) {
  std::vector<std::string> texts;
  for (const endpoint& address : addresses) {
    if (std::string text = address.text(); std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
  }
  return texts;
}

std::size_t number_of(rpc_face face) noexcept {
  return static_cast<std::size_t>(face);
}

}  // namespace

manager_client::manager_client(const client_options& options, std::unique_ptr<channel_table> channels)
    : limits_(options.limits),
      addresses_{texts_of(options.meta), texts_of(options.admin)},
      channels_(std::move(channels)) {}

result<std::unique_ptr<manager_client>> manager_client::make(const client_options& options) {
  auto channels = channel_table::make(options);
  if (!channels) return std::unexpected(channels.error());
  return std::unique_ptr<manager_client>(new manager_client(options, std::move(*channels)));
}

std::vector<std::string> manager_client::route(rpc_face face) {
  std::vector<std::string> addresses = addresses_.at(number_of(face));
  const std::lock_guard lock(mutex_);
  const std::string& leader = leaders_.at(number_of(face));
  if (leader.empty()) return addresses;
  std::erase(addresses, leader);
  addresses.insert(addresses.begin(), leader);
  return addresses;
}

bool manager_client::is_configured(const std::string& address) const {
  return std::ranges::any_of(addresses_,
                             [&](const auto& list) { return std::ranges::find(list, address) != list.end(); });
}

/// Managers name addresses, so connections to those that are neither configured nor the leader's go.
void manager_client::remember(rpc_face face, const std::string& leader) {
  const std::lock_guard lock(mutex_);
  std::string& stored = leaders_.at(number_of(face));
  if (stored == leader) return;
  if (!stored.empty() && !is_configured(stored)) channels_->drop(stored);
  stored = leader;
}

call_outcome<> manager_client::exchange(const rpc_row& row, const call_messages& messages) {
  const auto end = steady_clock::now() + limits_.call;
  auto addresses = route(row.face());
  if (addresses.empty()) {
    return std::unexpected(
        call_failure{.fault = call_fault::unreachable,
                     .message = std::string(row.name) + ": no address of its service is configured"});
  }
  call_course course(row.kind, std::move(addresses), limits_.hops);
  for (;;) {
    const auto rest = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    if (rest <= milliseconds::zero()) return course.expire();
    const std::string address = course.address();
    const call_attempt attempt = channels_->ask(address, row.grpc_path, messages, rest);
    const bool leads = attempt.state == attempt_state::answered && attempt.code != answer_code::server_not_leader;
    if (leads) {
      remember(row.face(), address);
    } else if (!is_configured(address)) {
      channels_->drop(address);
    }
    if (auto outcome = course.take(attempt)) return std::move(*outcome);
  }
}

}  // namespace cenote::manager
