// Questions in messages, which any client may send.
#pragma once

#include "core/error.hpp"
#include "services/indexer/grpc/calls_pool.hpp"
#include "services/indexer/grpc/indexer.pb.h"
#include "services/indexer/scoring/score_question.hpp"

namespace cenote::indexer {

namespace messages = ::indexer::v1;

// The bounds are those of a body over HTTP. A question is a view of the message and of `place`. Errors:
// invalid_argument, which names the field and what would be right.

[[nodiscard]] result<score_question> question_of(const messages::ScoreTokensRequest& request, call_place& place);
/// Without its tokens, which the prompt becomes.
[[nodiscard]] result<score_question> question_of(const messages::GetPodScoresRequest& request, call_place& place);
[[nodiscard]] result<void> check_keys(const messages::LookupRequest& request);

}  // namespace cenote::indexer
