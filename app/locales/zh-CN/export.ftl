# 等待导出的人看到的页面，以及无法导出的文字的答复。
# { $time } 和 { $ref } 可能是元素。用语平实：不出现队列、worker 或调用栈。

export-title = { $what } – Jobdeck
export-times-utc = 时间为 UTC
export-times-local = 时间为您所在时区（{ $zone }）

# 文件
export-untitled = 文档
export-meta-asked = { $format }，{ $time } 发起
export-meta-stopped = { $format }，{ $time } 停止
export-meta-done = { $format }，{ $size }
export-meta-done-pages = { $format }，{ $n } 页，{ $size }

export-steps = 步骤

# 标题
export-head-waiting = 正在排队
export-head-starting = 正在开始
export-head-retrying = 还需要一点时间
export-head-canceling = 正在取消
export-head-failed = 这次导出没有完成
export-head-canceled = 导出已取消
export-head-ready = 可下载

# 窗口标题
export-short-waiting = 排队中
export-short-place = 排队中，第 { $place } 位
export-short-percent = { $stage }，{ $percent } %
export-short-failed = 导出未完成
export-short-canceled = 已取消

# 阶段
export-stage-waiting = 排队中
export-stage-generating = 正在生成
export-stage-rendering = 正在排版
export-stage-uploading = 正在上传
export-stage-downloadable = 可下载
export-step-done = ，已完成
export-step-now = ，当前
export-step-next = ，未开始
export-step-stopped = ，已停止
export-step-again = ，稍后重试
export-since = { $time } 起
export-step-interrupted = { $time } 中断，即将第 { $n } 次尝试（共 { $max } 次）
export-step-try = 第 { $n } 次尝试（共 { $max } 次）
export-step-until = { $time } 前有效

# 正在发生什么
export-lead-waiting = 轮到您时会自动开始，无需任何操作。
export-lead-no-machine = 有空闲机器后立即开始，无需任何操作。
export-lead-starting = 已有机器接手您的导出，即将开始。
export-lead-generating = 正在读取并检查文字。
export-lead-rendering = 正在排版页面。
export-lead-rendering-html = 正在生成文件。
export-lead-uploading = 文档已完成，正在为您保存。
export-lead-other = 正在处理您的导出。
export-lead-canceling = 几秒内停止。
export-lead-canceled = 已于 { $time } 取消，未产生费用。
export-lead-ready = 已于 { $time } 完成，用时 { $duration }。
export-lead-due = 有空闲机器后立即开始下一次尝试。

# 数字
export-fact-place = 您的位置
export-ahead = { $n ->
    [0] 下一个就是您
   *[other] 前面还有 { $n } 个
  }
export-fact-ready = 预计还需
export-usual = 通常处理 { $range }
export-if-it-works = 如果届时成功
export-fact-next = 下次重试
export-at = { $time }
export-range-seconds = { $low }–{ $high } 秒
export-range-minutes = { $low }–{ $high } 分钟
export-few-seconds = 几秒钟
export-percent = { $percent } %
export-of-step = 本步骤
export-left = 约剩 { $duration }
export-left-few = 还剩几秒
export-longer = 比平时稍久
export-say-percent = { $stage }，百分之 { $percent }
export-say-retrying = 还需要一点时间，会自动重试。

# 上次尝试未成功，还会再试
export-retry-timeout = 处理时间过长，我们会自动重试。
export-retry-connection = 暂时无法连接服务，我们会自动重试。
export-retry-http_5xx = 服务出现问题，我们会自动重试。
export-retry-panic = 我们这边出了问题，会自动重试。
export-retry-storage = 暂时无法连接存储服务，我们会自动重试，您的文字不会丢失。
export-retry-lease_lost = 处理被中断，正在重新开始。
export-retry-slow_down = 服务繁忙，将于 { $time } 重试。
export-retry-database = 我们这边出了问题，会自动重试。
export-retry-io = 我们这边出了问题，会自动重试。
export-retry-mail_deferred = 邮件服务器要求稍后再发，我们会自动重试。
export-retry-http_unexpected = 服务返回了无法识别的内容，我们会自动重试。
export-retry-other = 出了一点问题，我们会自动重试。

# 没有得到文件
export-failed-gave-up = 尝试 { $n } 次仍未成功，未扣费。
export-failed-stalled_out = 多次被中断，我们已收到通知，请稍后再试。
export-failed-invalid_payload = 请求不完整，请从文档重新发起。
export-failed-not_found = 文档已不存在。
export-failed-permission = 您已无权访问该文档。
export-failed-quota = 您的额度已用完。
export-failed-invalid_credentials = 需要重新授权该服务。
export-failed-invalid_recipient = 邮箱地址无效，请检查后重新发送。
export-failed-mail_refused = 邮件服务器拒收了该邮件。
export-failed-http_4xx = 服务拒绝了该请求。这是我们这边的问题。
export-failed-http_unexpected = 服务返回了无法使用的内容。
export-failed-storage = 文件已生成，但存储服务拒绝保存。这是我们这边的问题。
export-failed-typeset = 页面无法排版。这是我们这边的问题。
export-failed-other = 我们这边出了问题。
export-same-again = 不做修改直接重试，结果会相同。

# 文字无法处理；行号从 1 开始
export-content-empty_text = 没有可显示的内容：文字为空。
export-content-too_large = 文字超过 { $limit } MB。
export-content-contains_nul = 第 { $line } 行含有非文字字符，可能是程序或图片文件。
export-content-missing_glyph = 现有字体缺少一个字符：第 { $line } 行的 { $code }。
export-content-missing_glyph-title = 现有字体缺少标题中的一个字符：{ $code }。
export-content-too_deep = 第 { $line } 行的列表、引用或强调嵌套过深。
export-content-too_slow = 文字未能在 { $seconds } 秒内读完。
export-content-other = 文字无法处理。
export-image-address = 第 { $line } 行的图片地址已损坏。
export-image-format = 第 { $line } 行的图片不是 PNG、JPEG、GIF、WebP 或 SVG。
export-image-damaged = 第 { $line } 行的图片已损坏或不完整。
export-image-too_large = 第 { $line } 行的图片过大。
export-image-linked = 第 { $line } 行的图片引用了其他文件，而外部文件不会被读取。
export-image-other = 第 { $line } 行的图片无法使用。

# 您可以这样做
export-advice = 您可以这样做
export-advice-change-text = 修改文字，然后重新导出。
export-advice-empty = 写一些文字，然后重新导出。
export-advice-split = 将文字拆分为多个文档，分别导出。
export-advice-text-file = 选择文本文件，或删除该字符，然后重新导出。
export-advice-remove-character = 删除或替换该字符，然后重新导出。
export-advice-html = 或改为导出 HTML，它使用您设备上的字体。
export-advice-image = 替换或删除该图片，然后重新导出。
export-advice-flatten = 减少该处的嵌套层级，然后重新导出。
export-advice-again = 重新生成，现在可能会成功。
export-advice-ask = 如果仍未成功，请联系服务管理者并提供下方编号。
export-advice-from-document = 请从文档重新发起导出。

# 操作
export-cancel = 取消导出
export-download = 下载 { $format }（{ $size }）
export-copy = 复制链接
export-copied = 链接已复制
export-again = 重新生成
export-back = 返回导出页面

# 其他说明
export-note-close = 可以关闭此页面。导出会继续进行，此链接在 { $time } 前有效。
export-note-until = 请在 { $time } 前通过此链接下载。
export-note-anyone = 获得此链接的人都可以打开该文件。
export-note-free = 本次导出未扣费。
export-note-reference = 如需帮助，请提供编号：{ $ref }
export-banner-running = 该导出已在进行中，已为您打开。
export-banner-made = 该导出此前已生成，已为您打开。

# 页面打开期间的提示
export-sign-offline = 网络已断开。导出仍在继续，页面会自动更新。
export-sign-quiet = 未实时更新。上次更新 { $time }，正在自动重试。
export-sign-polling = 每 15 秒更新一次。

# 代替导出的页面
export-invalid-head = 此链接无效
export-invalid-lead = 链接可能输入有误、已被撤回，或属于他人。请向发送者索取新的链接。
export-expired-head = 此链接已过期
export-expired-lead = 链接仅在一段时间内有效。请向发送者索取新的链接。
export-not-ready-head = 文件尚未就绪
export-not-ready-lead = 导出页面会显示当前进度。
export-gone-head = 文件已不存在
export-gone-lead = 文件已从存储中删除，可以重新导出文档。
export-trouble-head = 页面加载失败
export-trouble-lead = 我们这边出了问题。导出仍在继续，请稍后重新加载此页面。

# 未导出的文字
export-demo-head = 文档未导出
export-demo-empty = 文字为空。请写一些 Markdown，然后导出。
export-demo-nul = 第 { $line } 行第 { $column } 列含有 NUL 字符，它不是文字。请选择文本文件，或删除该字符。
export-demo-title-nul = 标题含有非文字字符，请重新输入。
export-demo-encoding = 文字不是有效的 UTF-8。请将文件另存为 UTF-8 后再导出。
export-demo-too-long = 文字为 { $size }，上限为 { $limit }。请拆分为多个文档。
export-demo-body-too-large = 一次提交的内容过多：文字上限为 { $limit }。请拆分为多个文档。
export-demo-busy = 此刻正在接收多份大文档。请返回，几秒后再次导出。
export-demo-format = 请选择 PDF 或 HTML。
export-demo-media = 表单的提交方式无法识别。请使用页面自带的表单。
export-demo-forbidden = 您无权导出文档，可联系管理员调整角色。
export-demo-trouble = 未导出：暂时无法连接队列。您的文字仍在此处，请稍后再试。
export-demo-kept = 您的文字保留在下方。
export-demo-title = 标题
export-demo-text = Markdown
export-demo-as = 格式
export-demo-send = 重新导出
export-demo-back = 返回“导出文档”
