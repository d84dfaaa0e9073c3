// In place of the tokenizer's client where there is no gRPC.
#include "services/indexer/text/text_tokenizer.hpp"

namespace cenote::indexer {

result<std::unique_ptr<text_tokenizer>> open_tokenizer(const tokenizer_options& /*options*/) {
  return fail(error_code::unsupported,
              "this program was built without gRPC, by which a tokenizer is asked: build it with CENOTE_GRPC=ON");
}

}  // namespace cenote::indexer
