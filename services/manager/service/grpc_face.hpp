// The manager's calls over gRPC.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "services/manager/service/call_desk.hpp"
#include "transport/grpc/call_handler.hpp"

namespace cenote::manager {

/// Answers the methods of a face. gRPC's threads borrow desks, which are made as they are needed.
class grpc_face final : public ::cenote::rpc::call_handler {
 public:
  /// `parts` outlive it.
  grpc_face(rpc_face face, const face_parts& parts) : face_(face), parts_(parts) {}

  [[nodiscard]] bool has_method(std::string_view method) const noexcept override;
  void handle(std::string_view method, const std::shared_ptr<::cenote::rpc::open_call>& call) override;

 private:
  using shared_call = std::shared_ptr<::cenote::rpc::open_call>;

  void answer(const rpc_row& row, const shared_call& call, const access_outcome<call_access>& access);
  [[nodiscard]] std::unique_ptr<call_desk> take_desk();
  void give_back(std::unique_ptr<call_desk> desk);

  rpc_face face_;
  const face_parts& parts_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<call_desk>> desks_;  ///< that are free
};

}  // namespace cenote::manager
