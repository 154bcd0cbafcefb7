#pragma once

namespace emm::cli {

/// Does the locale say that the terminal shows UTF-8?
bool speaks_utf8();

}  // namespace emm::cli
