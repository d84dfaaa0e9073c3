// The end of a write session.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "services/manager/writes/write_command.hpp"
#include "services/manager/writes/write_requests.hpp"

namespace cenote::manager {

/// Serves what was written and gives up the rest. A call with a wrong mask changes nothing: the session stays.
class finish_write final : public write_command {
 public:
  finish_write(finish_request request, outcome_receiver<void> receive)
      : request_(std::move(request)), receive_(std::move(receive)) {}

  [[nodiscard]] bool advance(write_parts& parts, write_round& round) override;
  void answer(const result<>& committed) override;
  [[nodiscard]] std::string_view instance() const noexcept override { return request_.instance; }

 private:
  [[nodiscard]] rpc_outcome<> finish(write_parts& parts, round_time now);
  [[nodiscard]] rpc_outcome<> finish_open(write_parts& parts, const session_name& name, session_place place,
                                          round_time now);
  [[nodiscard]] rpc_outcome<> compare(const finished_session& session, const session_name& name,
                                      std::uint64_t instance) const;
  [[nodiscard]] std::unexpected<rpc_refusal> refuse_session() const;

  finish_request request_;
  outcome_receiver<void> receive_;
  rpc_outcome<> outcome_{};
};

/// The mark by which the same mask with the same checksums is known again.
[[nodiscard]] std::uint64_t finish_mark_of(const std::vector<bool>& success, std::span<const std::uint64_t> checksums);

/// Ends a session as failed, since its time is over.
void expire_session(write_parts& parts, std::uint64_t extent);

}  // namespace cenote::manager
